"""Errors of calls and of the program."""

from concurrent.futures import BrokenExecutor
from datetime import datetime, timezone
from typing import Any, List, Optional, Tuple


class FalkonError(Exception):
    """Every error of this package is one."""


class SessionLost(FalkonError, BrokenExecutor):
    """The program that runs the calls is gone, or the connection to the dispatcher
    for longer than ``reconnect`` seconds. All calls that had not ended fail with
    it, and no more are taken."""


class NoRoom(FalkonError):
    """An object that is too large to travel with a call could not be put where calls find it: the
    caches of executors, or this machine's folder for temporary files."""


class InitializerFailed(FalkonError, BrokenExecutor):
    """The initializer raised: no call can be made."""


class TaskFailed(FalkonError):
    """A call did not come to its end. ``exit_code`` or ``signal`` has how its process ended,
    if it is one that did."""

    exit_code: Optional[int] = None
    signal: Optional[int] = None


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


# Refusals, and those of them that the dispatcher's logic gives (docs/protocol.md).
REQUEST, NOT_ALLOWED, JOURNAL, ACCESS, PROVISION, UNREAD, LONG_ANSWER, UNREADABLE = range(8)
GAP, SUBMISSION, BUSY, FORGOTTEN, EXPIRED, NO_ROOM = 2, 3, 4, 5, 10, 11
OVER_TASKS, OVER_SLOTS, OVER_BYTES = 18, 19, 20
_REASONS = {
    NOT_ALLOWED: "this access file does not allow it",
    JOURNAL: "it cannot write its journal: {1}",
    UNREAD: "too many answers have not been read yet",
    LONG_ANSWER: "the answer is {1} bytes, and cannot be sent",
    UNREADABLE: "the request cannot be read: {1}",
}
_OF_LOGIC = {
    0: "there is no instance {1}",
    1: "instance {1} takes no more tasks",
    GAP: "tasks from {2} on were submitted where {1} comes next",
    BUSY: "the instance's queue is full ({1} bytes)",
    FORGOTTEN: "results before number {1} were delivered and forgotten",
    6: "there are too many different needs of resources in one instance",
    9: "there are {1} instances already",
    NO_ROOM: "the dispatcher has no room for more: its disk at {1} has {2} bytes free, and {3} are "
    "wanted; make room there, read results, or destroy instances that are over",
    12: "no executor is there that could run it: start one (falkon executor)",
    13: "instance {1} has a task already for executors that join",
    OVER_TASKS: "this user may have {3} tasks queued and running, and {1} are there",
    OVER_SLOTS: "a task asks for {1} CPUs, and this user may use {2} at a time",
    OVER_BYTES: "{1} bytes of results and queued tasks are kept for this user, and at most {2} may "
    "be",
    21: "this user has {1} of {2} instances: destroy some that are over (falkon destroy), "
    "or ask the owner for more",
}
_PARTS = (
    "rows", "classed tasks", "names", "row column", "class run", "name column",
    "dependency offset", "dependency of a task on itself", "list of custom resources",
    "list of data objects", "list of values to take", "list of tasks", "list of ranges",
    "name of a resource", "name of a task", "URL of a data object",
    "version of a data object", "task with its data objects",
    "task that is to run everywhere", "class of tasks that run on several nodes",
    "class of tasks of which two tries may run at the same time",
    "class of tasks that claim disk space",
)  # fmt: skip
"""The parts of a submission, by the numbers that refusals have for them."""


def concerns_its_calls(reason: List[Any]) -> bool:
    """Whether a submission was refused for what is in it, so that a part of it may
    be taken."""
    if reason[0] != REQUEST:
        return bool(reason[0] == UNREADABLE)
    error = reason[1]
    return bool(error[0] == SUBMISSION or error[0] == OVER_TASKS and error[2] > error[3])


def is_for_now(reason: List[Any]) -> bool:
    """Whether what was refused may be taken later, when something has ended."""
    if reason[0] != REQUEST:
        return False
    error = reason[1]
    return error[0] in (BUSY, NO_ROOM, OVER_BYTES) or error[0] == OVER_TASKS and error[2] <= error[3]


def refusal(message: List[Any]) -> str:
    """Why a request was refused, for people."""
    reason = message[2]
    if reason[0] != REQUEST:
        return _REASONS.get(reason[0], "refusal {0}: {1}").format(*reason, "")
    error = reason[1]
    if error[0] == EXPIRED:
        at = datetime.fromtimestamp(error[2] / 1e6, timezone.utc)
        return (
            "nobody was connected for longer than the instance's lease, and it was destroyed "
            "at %s" % at.isoformat(timespec="seconds")
        )
    if error[0] == SUBMISSION:
        return _of_submission(*error[1])
    return _OF_LOGIC.get(error[0], "refusal of the request: {0} {1}").format(*error, "")


def _of_submission(tag: int, part: int, first: int, second: int) -> str:
    """The fault of a submission, in words."""
    name = _PARTS[part] if part < len(_PARTS) else "part %d" % part
    if tag == 4:
        return "a %s is %d bytes, and at most %d can be sent and kept" % (name, first, second)
    if tag == 1:
        return "%d tasks were announced, and there are %d %s" % (first, second, name)
    return "it has no tasks, or too many" if tag in (0, 3) else "a malformed %s" % name
