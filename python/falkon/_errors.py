"""What can go wrong."""

from concurrent.futures import BrokenExecutor
from datetime import datetime, timezone
from typing import Any, List, Optional, Tuple


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


class CallLost(TaskFailed):
    """The dispatcher had accepted the call and does not know it any more: its
    machine went down and took the end of the journal with it, or the journal was
    replaced by an older copy. The call may or may not have been made."""


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


EXPIRED = 9
"""A refusal because the instance has expired."""


def refusal(message: List[Any]) -> str:
    """Why a request was refused, for people."""
    reason = message[2]
    if reason[0] == 0 and reason[1][0] == EXPIRED:
        at = datetime.fromtimestamp(reason[1][2] / 1e6, timezone.utc)
        return (
            "nobody was connected for longer than the instance's lease, and it was destroyed "
            "at %s" % at.isoformat(timespec="seconds")
        )
    return str(reason)
