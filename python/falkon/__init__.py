"""Falkon: very many short calls, on whatever machines there are.

>>> import falkon
>>> with falkon.Executor() as executor:
...     print(list(executor.map(abs, [-1, 2, -3])))
[1, 2, 3]
"""

from ._apps import App, ShellApp, default_executor, gather, python_app, shell_app, use
from ._errors import (
    CallTimeout,
    DependencyError,
    FalkonError,
    InitializerFailed,
    RemoteError,
    SessionLost,
    TaskFailed,
    WorkerDied,
)
from ._executor import Executor
from ._futures import Future

__all__ = [
    "App",
    "CallTimeout",
    "DependencyError",
    "Executor",
    "FalkonError",
    "Future",
    "InitializerFailed",
    "RemoteError",
    "SessionLost",
    "ShellApp",
    "TaskFailed",
    "WorkerDied",
    "default_executor",
    "gather",
    "python_app",
    "shell_app",
    "use",
]
