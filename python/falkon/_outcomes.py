"""Outcomes of calls: how the futures of calls end by the results of their tasks."""

import logging
import threading
import weakref
from typing import Any, Callable, Iterable, List, Optional, Tuple

from ._arriving import Arriving
from ._calls import exception_of, value_of
from ._connection import Message
from ._dataflow import SHORT_VALUE_BYTES
from ._errors import CallTimeout, InitializerFailed, TaskFailed, VersionMismatch, WorkerDied
from ._futures import CANCELLED_AND_NOTIFIED, FINISHED, Future
from ._objects import Objects, is_in_cache, is_named
from ._output import Output
from ._references import failure_of, has_value, upstream

EXIT, SIGNAL, TIMED_OUT, NOT_RUN, LOST, UPSTREAM_FAILED, UNSCHEDULABLE, CANCELLED = range(8)
NO_OUTPUT, NO_INPUT, UNREADABLE = range(8, 11)
RAISED, INITIALIZER_FAILED, VERSION_MISMATCH, WORKER_DIED = range(4)
"""Causes of a failure."""
CAUSE = 6
"""The place of the cause in the detail of a result."""
OUTCOMES = {
    NOT_RUN: "it could not be run",
    LOST: "executors were lost while they ran it, as often as it was tried",
    UPSTREAM_FAILED: "a call that it depends on failed",
    UNSCHEDULABLE: "no executor offers what it needs",
    NO_OUTPUT: "an output that was promised is not there",
    NO_INPUT: "an input could not be fetched",
    UNREADABLE: "it has ended, but its result cannot be read",
}
LOG = logging.getLogger("falkon")


def end_all(failed: Iterable[Tuple[Future[Any], Optional[BaseException]]]) -> None:
    """Ends the futures of calls that failed; what a callback of one raises does not
    keep the others from ending."""
    raised: Optional[BaseException] = None
    for future, error in failed:
        try:
            future._end(FINISHED, None, error)
        except BaseException as exception:
            LOG.exception("the future of a call of %s could not be ended", future._name)
            raised = exception
    if raised is not None and threading.current_thread() is threading.main_thread():
        raise raised


class Outcomes:
    """The ends of a session's calls, and their values as long as these are fetched."""

    def __init__(
        self,
        objects: Objects,
        output: Output,
        arriving: Arriving,
        is_made_again: Callable[[Future[Any], bool], bool],
    ):
        self._objects = objects
        self._output = output
        self._arriving = arriving
        self._is_made_again = is_made_again
        """Whether a call is made again that was not made, because of its inputs or not."""
        self._long: "weakref.WeakSet[Future[Any]]" = weakref.WeakSet()
        """Calls that returned more than ``SHORT_VALUE_BYTES``."""

    def end(self, future: Future[Any], run: Message) -> Optional[BaseException]:
        """Ends a future by the result of its task, with others in a run of equal results.
        If no other call can be made either, returns the error of them all instead."""
        outcome, detail = run[2], run[9]
        if detail is not None:
            self._output.of_call(detail)
        tag = outcome[0]
        if tag == EXIT and outcome[1] == 0:
            self._end_well(future, detail)
        elif tag == CANCELLED:
            future._end(CANCELLED_AND_NOTIFIED, None, None)
        elif tag in (NO_INPUT, UPSTREAM_FAILED) and self._is_made_again(future, tag == NO_INPUT):
            pass
        elif tag == UPSTREAM_FAILED:
            before = upstream(future)
            failed = [need for need in before if need._task == outcome[1]]
            # A call that was to be made again, and was not, has its number no more.
            failed += [one for one in before if one.done() and not has_value(one)]
            error = failure_of(failed[0]) if failed else error_of(outcome, detail)
            future._end(FINISHED, None, error)
        else:
            error = error_of(outcome, detail)
            if isinstance(error, InitializerFailed):
                return error
            future._end(FINISHED, None, error)
        return None

    def _end_well(self, future: Future[Any], detail: Optional[Message]) -> None:
        if detail is None:
            future._end(FINISHED, None, None)
            return
        data = detail[3]
        is_here = self._objects.is_here
        if not is_here and is_in_cache(data):
            if self._objects.caches is None:
                # Calls that take it are given it from here.
                self._long.add(future)
            self._arriving.add(future, self._objects.returned_in_cache(future, data))
            return
        try:
            if is_here and is_named(data):
                value = self._objects.take(future, data)
            else:
                value = value_of(data)
            if len(data) > SHORT_VALUE_BYTES:
                self._long.add(future)
        except BaseException as exception:
            future._end(FINISHED, None, exception)
        else:
            future._end(FINISHED, value, None)

    def is_long(self, future: Future[Any]) -> bool:
        """Whether a call returned more than ``SHORT_VALUE_BYTES``."""
        return future in self._long

    def has_ended(self, future: Future[Any]) -> bool:
        """Whether a call has ended, if only with an object that is still fetched.

        The fetching thread ends a future before it takes the future from those that
        arrive, without the session's lock: a question in the other order may find neither.
        """
        return future in self._arriving or future.done()

    def has_value(self, future: Future[Any]) -> bool:
        """Whether the value of a call is known, if only as an object; asked in the order
        of :meth:`has_ended`."""
        return future in self._arriving or has_value(future)

    def arriving(self) -> int:
        """Calls whose values are fetched."""
        return len(self._arriving)

    def give_up(self) -> List[Future[Any]]:
        """Fetches no more; returns the futures of calls whose values have not come."""
        return self._arriving.give_up()


def error_of(outcome: Message, detail: Optional[Message]) -> BaseException:
    """The error of a call whose task ended otherwise than well."""
    error = detail[2] if detail is not None else ""
    value = detail[3] if detail is not None else b""
    tag = outcome[0]
    if tag == SIGNAL:
        return WorkerDied(error or "it was ended by signal %d" % outcome[1], signal=outcome[1])
    if tag == TIMED_OUT:
        return CallTimeout(error or "the call took longer than its timeout")
    if tag != EXIT:
        return TaskFailed(error or OUTCOMES.get(tag, "it failed: outcome %r" % (outcome,)))
    cause = detail[CAUSE] and detail[CAUSE][0] if detail is not None else None
    if cause == INITIALIZER_FAILED:
        return InitializerFailed(error)
    if cause == VERSION_MISMATCH:
        return VersionMismatch(error)
    if cause == WORKER_DIED:
        return WorkerDied(error, exit_code=outcome[1])
    # sys.exit() has an exit code and no cause; its exception is the value.
    if cause == RAISED or value:
        return exception_of(value, error)
    failed = TaskFailed(error or "it exited with code %d" % outcome[1])
    failed.exit_code = outcome[1]
    return failed
