"""Falkon: very many short calls, on whatever machines there are.

>>> import falkon
>>> with falkon.Executor() as executor:
...     print(list(executor.map(abs, [-1, 2, -3])))
[1, 2, 3]
"""

# Not of `typing`, which takes longer to import than all of this package.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._apps import App, ShellApp, python_app, shell_app
    from ._async_client import AsyncClient, AsyncData, AsyncInstance, AsyncProvision
    from ._calling import default_executor, use
    from ._client import Client, Data, Instance, Provision
    from ._errors import (
        CallLost,
        CallTimeout,
        DependencyError,
        FalkonError,
        InitializerFailed,
        NoRoom,
        RemoteError,
        SessionLost,
        TaskFailed,
        VersionMismatch,
        WorkerDied,
    )
    from ._executor import Executor
    from ._files import File, FileFuture
    from ._foreach import Row, foreach, glob, members, rows, to
    from ._futures import Future
    from ._gathered import gather
    from ._pool import Pool
    from ._progress import progress
    from ._requests import ClientError, Result
    from ._restart import ResumeError
    from ._run import Run, run

__all__ = [
    "App",
    "AsyncClient",
    "AsyncData",
    "AsyncInstance",
    "AsyncProvision",
    "CallLost",
    "CallTimeout",
    "Client",
    "ClientError",
    "Data",
    "DependencyError",
    "Executor",
    "FalkonError",
    "File",
    "FileFuture",
    "Future",
    "InitializerFailed",
    "Instance",
    "NoRoom",
    "Pool",
    "Provision",
    "RemoteError",
    "Result",
    "ResumeError",
    "Row",
    "Run",
    "SessionLost",
    "ShellApp",
    "TaskFailed",
    "VersionMismatch",
    "WorkerDied",
    "default_executor",
    "foreach",
    "gather",
    "glob",
    "members",
    "progress",
    "python_app",
    "rows",
    "run",
    "shell_app",
    "to",
    "use",
]

_PLACES = {
    "_apps": "App ShellApp python_app shell_app",
    "_async_client": "AsyncClient AsyncData AsyncInstance AsyncProvision",
    "_calling": "default_executor use",
    "_client": "Client Data Instance Provision",
    "_errors": "CallLost CallTimeout DependencyError FalkonError InitializerFailed NoRoom "
    "RemoteError SessionLost TaskFailed VersionMismatch WorkerDied",
    "_executor": "Executor",
    "_files": "File FileFuture",
    "_foreach": "Row foreach glob members rows to",
    "_futures": "Future",
    "_gathered": "gather",
    "_pool": "Pool",
    "_progress": "progress",
    "_requests": "ClientError Result",
    "_restart": "ResumeError",
    "_run": "Run run",
}
"""Where names are. They are imported when they are first used: scripts that make
calls need no clients, and those that only may make calls start sooner."""

if not TYPE_CHECKING:

    def __getattr__(name):
        for place, names in _PLACES.items():
            if name in names.split():
                import importlib

                value = getattr(importlib.import_module("." + place, __name__), name)
                globals()[name] = value
                return value
        raise AttributeError("module %r has no attribute %r" % (__name__, name))

    def __dir__():
        return sorted({*globals(), *__all__})

if not TYPE_CHECKING:
    from . import _early

    _early.begin()
