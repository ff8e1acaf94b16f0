"""Falkon: very many short calls, on whatever machines there are.

>>> import falkon
>>> with falkon.Executor() as executor:
...     print(list(executor.map(abs, [-1, 2, -3])))
[1, 2, 3]
"""

from typing import TYPE_CHECKING, Any

from ._apps import App, ShellApp, default_executor, gather, python_app, shell_app, use
from ._errors import (
    CallTimeout,
    DependencyError,
    FalkonError,
    InitializerFailed,
    RemoteError,
    SessionLost,
    TaskFailed,
    VersionMismatch,
    WorkerDied,
)
from ._executor import Executor
from ._futures import Future

if TYPE_CHECKING:
    from ._async_client import AsyncClient, AsyncInstance
    from ._client import Client, Data, Instance, Provision
    from ._files import File, FileFuture
    from ._progress import progress
    from ._requests import ClientError, Result

__all__ = [
    "App",
    "AsyncClient",
    "AsyncInstance",
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
    "Provision",
    "RemoteError",
    "Result",
    "SessionLost",
    "ShellApp",
    "TaskFailed",
    "VersionMismatch",
    "WorkerDied",
    "default_executor",
    "gather",
    "progress",
    "python_app",
    "shell_app",
    "use",
]

_LATER = {
    "AsyncClient": "_async_client",
    "AsyncInstance": "_async_client",
    "Client": "_client",
    "ClientError": "_requests",
    "Data": "_client",
    "File": "_files",
    "FileFuture": "_files",
    "Instance": "_client",
    "Provision": "_client",
    "Result": "_requests",
    "progress": "_progress",
}
"""What is imported when it is first used: a script that makes calls needs none
of it, and starts sooner."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        value = getattr(importlib.import_module("." + _LATER[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
