"""Calls that a thread makes ready before they are submitted.

What takes long must not hold the session's lock: a thread of its own packs values into
objects and puts objects into the caches of executors. Calls that take the values of
such calls stay behind them.
"""

import threading
from concurrent.futures import CancelledError
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _dataflow
from ._connection import Connection
from ._futures import PENDING, Future
from ._kinds import Call, with_data
from ._outcomes import Outcomes
from ._questions import Questions
from ._references import Maker, failure_of, upstream
from ._submissions import Submissions

EXECUTOR_SECONDS = (0.05, 1.0)
"""First and longest pause before the dispatcher is asked again whether there is an
executor."""


class Preparing:
    """The calls of a session that are not ready to be submitted."""

    def __init__(
        self,
        session: Maker,
        connection: Connection,
        submissions: Submissions,
        outcomes: Outcomes,
        questions: Questions,
        end_failed: Callable[[], None],
    ):
        self._session = session
        self._connection = connection
        self._submissions = submissions
        self._outcomes = outcomes
        self._questions = questions
        self._end_failed = end_failed
        """Ends the futures of calls that have failed; the lock is not held."""
        self._calls: Dict[Future[Any], Call] = {}
        """Calls in order. One stays here until it is queued: others may take its value."""

    def ready(self, call: Call) -> Optional[Call]:
        """A call as it is submitted: with the values that it takes and the dispatcher may
        have forgotten. ``None`` if it cannot be made, or has to be made ready by the
        thread first; the lock is held."""
        kind, payload, future = call
        uses = future._objects
        if (self._calls and self._takes_one_of_these(future)) or (
            uses and uses.waits_for_caches()
        ):
            self.add(call)
            return None
        submissions = self._submissions
        try:
            for need in upstream(future):
                cause = need._exception or submissions.failure(need)
                if cause is not None or need.cancelled():
                    raise failure_of(need, cause)
                if not (submissions.is_submitted(need) or self._outcomes.has_ended(need)):
                    # That call was made ready after this one was queued: this one is
                    # queued behind it.
                    self.add(call)
                    return None
            known = self._known(future)
            places = [place for place, _ in known]
            if not known or places == list(_dataflow.places_given(payload)):
                return call
            if len(known) > _dataflow.FEW_VALUES or any(self._outcomes.is_long(need) for _, need in known):
                self.add(call)
                return None
            payload = self._with_given(payload, known, future)
        except Exception as exception:
            submissions.fail(future, exception)
            return None
        return with_data(kind, future), payload, future

    def add(self, call: Call) -> None:
        """Has the thread make a call ready; the lock is held."""
        self._calls[call[2]] = call
        if len(self._calls) == 1:
            threading.Thread(target=self._run, daemon=True, name="falkon").start()

    def _takes_one_of_these(self, future: Future[Any]) -> bool:
        return any(need in self._calls for need in upstream(future))

    def _known(self, future: Future[Any]) -> List[Tuple[int, Future[Any]]]:
        """The calls whose values a call takes, with their places, that have ended and
        that the dispatcher may have forgotten; the lock is held."""
        return [
            (place, need)
            for place, need in enumerate(future._needs or ())
            if not self._submissions.is_pending(need) and self._outcomes.has_ended(need)
        ]

    def _with_given(
        self, payload: bytes, known: List[Tuple[int, Future[Any]]], future: Future[Any]
    ) -> bytes:
        payload = _dataflow.without_given(payload)
        return _dataflow.with_given(payload, known, future, self._session)

    def _run(self) -> None:
        """Makes calls ready, and submits them."""
        while True:
            with self._connection.lock:
                if not self._calls:
                    break
                kind, payload, future = next(iter(self._calls.values()))
                needs = future._needs or ()
                has_all = bool(needs) and all(map(self._outcomes.has_value, needs))
                known = list(enumerate(needs)) if has_all else self._known(future)
            error: Optional[BaseException] = None
            try:
                if self._session.clusters:
                    _wait_for(known)
                if known:
                    payload = self._with_given(payload, known, future)
                    if has_all:
                        future._needs = None
                self._place(future)
                kind = with_data(kind, future)
            except BaseException as raised:
                error = raised
            with self._connection.lock:
                if self._calls.pop(future, None) is None:
                    break  # The session has ended.
                if error is not None:
                    self._submissions.fail(future, error)
                else:
                    self._submissions.add_all([(kind, payload, future)])
            self._end_failed()

    def _place(self, future: Future[Any]) -> None:
        """Puts the objects of a call into caches that are in none; waits for an executor."""
        uses, caches = future._objects, self._session.objects.caches
        if uses is None or caches is None:
            return
        pause = EXECUTOR_SECONDS[0]

        def wait() -> None:
            nonlocal pause
            with self._connection.lock:
                if future._state != PENDING:
                    raise CancelledError
                self._questions.pause(pause)
            pause = min(2 * pause, EXECUTOR_SECONDS[1])

        for stored in list(uses.stored):
            caches.place(stored, wait)

    def futures(self) -> List[Future[Any]]:
        """The futures of its calls; the lock is held."""
        return list(self._calls)

    def __contains__(self, future: Future[Any]) -> bool:
        return future in self._calls

    def __len__(self) -> int:
        return len(self._calls)

    def give_up(self) -> List[Future[Any]]:
        """Forgets all calls; returns their futures. The lock is held."""
        left = list(self._calls)
        self._calls.clear()
        return left


def _wait_for(known: List[Tuple[int, Future[Any]]]) -> None:
    """Waits until the values of calls have come that are on their way here."""
    for _, need in known:
        try:
            need.exception()
        except CancelledError:
            pass  # Who takes its value fails for that.
