"""What can go wrong."""

from concurrent.futures import BrokenExecutor
from typing import Any, Optional, Tuple


class FalkonError(Exception):
    """Every error of this package is one."""


class SessionLost(FalkonError, BrokenExecutor):
    """The program that runs the calls is gone, or the connection to the dispatcher
    for longer than ``reconnect`` seconds. All calls that had not ended fail with
    it, and no more are taken."""


class InitializerFailed(FalkonError, BrokenExecutor):
    """The initializer raised: no call can be made."""


class TaskFailed(FalkonError):
    """A call did not come to its end."""


class WorkerDied(TaskFailed, BrokenExecutor):
    """The process that made the call ended in the middle of it. Other calls are
    not affected."""

    def __init__(self, text: str, exit_code: Optional[int] = None, signal: Optional[int] = None):
        super().__init__(text)
        self.exit_code = exit_code
        self.signal = signal

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.args[0], self.exit_code, self.signal))


class CallTimeout(TaskFailed, TimeoutError):
    """The call took longer than its ``timeout`` and was ended."""


class VersionMismatch(TaskFailed):
    """A worker cannot make sense of what it was sent: it has another Python or
    another cloudpickle than this process. The text names the versions."""


class DependencyError(TaskFailed):
    """The call was not made, because one whose value it takes failed or was
    cancelled. What that raised is the cause (``__cause__``), also if other calls
    are between the two."""


class RemoteError(TaskFailed):
    """The call raised something that cannot be brought here; the text is its
    traceback."""


class RemoteTraceback(Exception):
    """The cause of what a call raised: its traceback, as text."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return '\n"""\n%s\n"""' % self.text
