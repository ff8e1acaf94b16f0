"""A client's conversation with a dispatcher (docs/protocol.md).

This file is long because one class owns the connection, the calls on their way and
the results: each part reads what the others write, under one lock.
"""

import copy
import logging
import os
import struct
import threading
import time
import weakref
from bisect import bisect_left
from collections import deque
from concurrent.futures import CancelledError
from operator import itemgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
)

import msgspec

from . import _dataflow, _futures
from ._arriving import Arriving
from ._calls import exception_of, value_of
from ._connection import (
    CANCEL,
    CREATE,
    DESTROY,
    GONE,
    REFUSED,
    RESULTS,
    STATUS,
    SUBMIT,
    SUBSCRIBE,
    TASKS,
    Connection,
    Message,
)
from ._errors import (
    BUSY,
    GAP,
    NO_ROOM,
    REQUEST,
    CallLost,
    CallTimeout,
    InitializerFailed,
    SessionLost,
    TaskFailed,
    VersionMismatch,
    WorkerDied,
    concerns_its_calls,
    refusal,
)
from ._futures import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, Future
from ._objects import PAYLOAD_BYTES, Objects, Stored, declared, is_in_cache, is_named
from ._output import Output, Show
from ._program import Program, folder_options

if TYPE_CHECKING:
    from ._early import Early

# Outcomes.
EXIT, SIGNAL, TIMED_OUT, NOT_RUN, LOST, UPSTREAM_FAILED, UNSCHEDULABLE, CANCELLED = range(8)
NO_INPUT = 9
# Causes, and where they are in the detail of a result.
RAISED, INITIALIZER_FAILED, VERSION_MISMATCH, WORKER_DIED = range(4)
CAUSE = 6
OUTCOMES = {
    NOT_RUN: "it could not be run",
    LOST: "executors were lost while they ran it, as often as it was tried",
    UPSTREAM_FAILED: "a call that it depends on failed",
    UNSCHEDULABLE: "no executor offers what it needs",
    8: "an output that was promised is not there",
    NO_INPUT: "an input could not be fetched",
    10: "it has ended, but its result cannot be read",
}
MAX_COMPUTE_UTIL = [[3], 0, 900, 0]
"""The dispatch policy: name, window, threshold, replicas."""

LEASE_SECONDS_SPARE = 60.0
"""How much longer than a client looks for its dispatcher, at least, the
dispatcher keeps what a client has that it does not hear of."""
KEEP_AS_DISPATCHER = [0]
LOST_TEXT = (
    "the dispatcher does not know this call any more: it was started again, and had lost the "
    "end of its journal; whether the call was made is not known (falkon start --durability "
    "machine loses nothing)"
)

BATCH_CALLS = 8192
"""Calls that are submitted together at most; in one message as well."""
BATCH_BYTES = 4 << 20
"""Payloads that are submitted together, beyond the last."""
BATCHES_UNDER_WAY = 4
"""Batches that are not accepted yet, before more wait to become larger ones."""
FEW_VALUES = 32
"""Values that are known here and are put in front of a call while others wait; of more,
or of one that is longer than ``SHORT_VALUE_BYTES``, an object may have to be made."""
SHORT_VALUE_BYTES = _dataflow.GIVEN_BYTES_MAX // FEW_VALUES
STATUS_EXECUTORS, STATUS_NEXT = 4, 6
EXECUTOR_CONNECTED = 6
"""Fields of a status, and of an executor in it (docs/protocol.md)."""
AWAY_LOOK_SECONDS = 0.1
"""How often it is looked whether the dispatcher is gone that is to answer."""
GIVE_UP_AWAY_SECONDS = 1.0
"""How long a dispatcher may be away before its calls are given up by an interpreter that
ends, or a shutdown that cancels."""
EXECUTOR_SECONDS = (0.05, 1.0)
"""First and longest pause before the dispatcher is asked again whether there is an
executor."""
WIDE_VALUES_HERE = 10
"""Values of at most 1 MiB, larger ones being objects, that may be too long together
for one message (``ROW_WITH_VALUES_BYTES_MAX`` of the dispatcher)."""
WIDE_VALUES = 1
"""With a dispatcher between, one may be: what is longer than 8 MiB is in a cache."""
BUSY_SECONDS = (0.05, 2.0)
"""First and longest pause before submissions that were not taken are made again."""

LOG = logging.getLogger("falkon")
_encode = msgspec.msgpack.Encoder().encode

Call = Tuple["Kind", bytes, Future[Any]]
"""Which function with which options, the arguments, and the outcome."""


class Kind:
    """What calls have in common: a function and options, as the protocol has
    them."""

    __slots__ = ("name", "template", "task_class", "has_data", "before", "_with_data")

    def __init__(
        self,
        name: str,
        code: bytes,
        task_class: Message,
        environment: Sequence[Tuple[str, str]] = (),
    ):
        self.name = name
        # Whether its calls read or write data objects.
        self.has_data = False
        self._with_data: Optional["Kind"] = None
        # What its calls are passed before their arguments, as it is too large for code.
        self.before: Tuple["Stored", ...] = ()
        function = ["python", name.encode(), code]
        env = [[name.encode(), value.encode()] for name, value in environment]
        self.template = _encode([2, [[], env, None, None, [], [], [function, b""]]])
        self.task_class = task_class

    def with_data(self) -> "Kind":
        """The same, for calls that read or write data objects."""
        if self.has_data:
            return self
        if self._with_data is None:
            other = copy.copy(self)
            other.has_data = True
            self._with_data = other
        return self._with_data


class Session:
    """One instance at a dispatcher, and the calls that are made through it."""

    def __init__(
        self,
        options: List[str],
        output: Optional[Show],
        access: Optional[str] = None,
        away_seconds: float = 0.0,
        early: Optional["Early"] = None,
        starts: Callable[[List[str]], Program] = Program,
    ):
        self.access = access
        """The access file of the dispatcher, if it is not of this session alone."""
        self.objects = Objects(access, early.folder if early else None)
        """Arguments and values that are too large to travel with calls."""
        if access is None:
            options = [*options, *folder_options(self.objects.folder)]
        try:
            started = early.program if early else None
            self.connection = Connection(options, access, away_seconds, started, starts)
        except BaseException:
            self.objects.close()
            raise
        self._lock = self.connection.lock
        if self.objects.caches is not None:
            self.objects.caches.has_executor = self._has_executor
        self._output = Output(output, self.objects.overflow)
        self._queue: Deque[Call] = deque()
        self._sent: Dict[int, List[Call]] = {}
        """Submissions that are not accepted yet, by their requests."""
        self._returned: List[Tuple[int, List[Call]]] = []
        """Those that are to be made again, by the first of their numbers."""
        self._unsent: Dict[Future[Any], BaseException] = {}
        """Calls that cannot be made, until their futures say so."""
        self._pending: Dict[int, Future[Any]] = {}
        self._wide: Dict[int, Call] = {}
        """Calls whose values may be too much for one message together, and those
        that take theirs: they are made again with values that are objects."""
        self._again: Dict[Future[Any], Call] = {}
        """Calls, in order, whose values or objects another thread makes ready: what
        takes long must not hold the lock. Those that take their values are behind
        them."""
        self._long: "weakref.WeakSet[Future[Any]]" = weakref.WeakSet()
        """Calls that returned more than ``SHORT_VALUE_BYTES``."""
        self._arriving = Arriving(self._fetch, self._look_whether_done)
        """Calls whose values are in caches, and are fetched."""
        self._answers: Dict[int, Deque[Message]] = {}
        self._answered = threading.Condition(self._lock)
        self._next_task = 0
        self._wide_from = WIDE_VALUES_HERE if access is None else WIDE_VALUES
        self._client = int.from_bytes(os.urandom(8), "little") or 1
        """What tells calls that are submitted again from another client's."""
        self._pause = BUSY_SECONDS[0]
        self._said_no_room = False
        self._batch_calls = BATCH_CALLS
        """Calls that are submitted together now: fewer while one is looked for for
        which a submission was refused."""
        self._closing = False
        self._farewell: Optional[int] = None
        self.error: Optional[BaseException] = None
        self._receiver = threading.Thread(target=_receive, args=(self,), daemon=True, name="falkon")
        _sessions.add(self)
        self._receiver.start()
        try:
            created = self._create(instance_options(access, away_seconds))
            self.connection.has_instance(created[2], created[3])
            if self.objects.caches is not None:
                self.objects.caches.instance = created[2]
            self.connection.resumes = self._resumes
            self.ask(SUBSCRIBE, created[2], 0)
        except BaseException:
            self.close()
            raise

    # Saying.

    def ask(self, tag: int, *fields: Any, may_wait: bool = True) -> Message:
        """Makes a request and waits for its answer; for a dispatcher that is gone only
        if it ``may_wait``."""
        answer = self._answer(tag, fields, may_wait)
        if answer[0] == REFUSED:
            raise TaskFailed("the dispatcher refused: %s" % refusal(answer))
        return answer

    def _answer(self, tag: int, fields: Sequence[Any], may_wait: bool = True) -> Message:
        """As :meth:`ask`, with refusals as answers."""
        with self._lock:
            self._check()
            answer: Deque[Message] = deque()
            request = self.connection.request(tag, *fields)
            self._answers[request] = answer
            while not answer:
                if self.error is not None:
                    raise self.error
                if may_wait:
                    self._answered.wait()
                    continue
                if self.connection.is_away:
                    del self._answers[request]
                    raise SessionLost("the dispatcher is gone for now")
                self._answered.wait(AWAY_LOOK_SECONDS)
            del self._answers[request]
        return answer[0]

    def _create(self, options: List[Any]) -> Message:
        """Creates an instance, as soon as the dispatcher has room for one."""
        pause = BUSY_SECONDS[0]
        while True:
            answer = self._answer(CREATE, (options,))
            if answer[0] != REFUSED:
                return answer
            if answer[2][0] != REQUEST or answer[2][1][0] != NO_ROOM:
                raise TaskFailed("the dispatcher refused: %s" % refusal(answer))
            self._waits_for_room(answer)
            time.sleep(pause)
            pause = min(2 * pause, BUSY_SECONDS[1])

    def _waits_for_room(self, answer: Message) -> None:
        if not self._said_no_room:
            self._said_no_room = True
            LOG.warning("waiting: %s", refusal(answer))

    def is_receiving(self) -> bool:
        """Whether this thread is the one that receives: an answer that it waits for
        would not come."""
        return threading.current_thread() is self._receiver

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def submit(self, kind: Kind, payload: bytes, future: Future[Any]) -> None:
        """Has a call made."""
        if len(payload) > PAYLOAD_BYTES:
            raise _too_long(payload)
        future._session = self
        future._name = kind.name
        with self._lock:
            self._check()
            self._queue.append((kind, payload, future))
            if not self._sent:
                self._submit_queued()
        if self.connection.interrupted is not None:
            self.connection.raise_interrupted()
        if self._unsent:
            self._end_unsent()

    def submit_all(self, calls: List[Call]) -> None:
        """Has calls made, in order."""
        with self._lock:
            self._check()
            self._queue.extend(calls)
            if len(self._sent) < BATCHES_UNDER_WAY:
                self._submit_queued()
        if self.connection.interrupted is not None:
            self.connection.raise_interrupted()
        if self._unsent:
            self._end_unsent()

    def _submit_queued(self) -> None:
        """Sends what waits to be sent; the lock is held."""
        queue = self._queue
        while queue and len(self._sent) < BATCHES_UNDER_WAY and not self._returned:
            groups = Groups()
            first = groups.first
            room = BATCH_BYTES
            for _ in range(min(len(queue), self._batch_calls)):
                call = queue.popleft()
                kind, payload, future = call
                if future._state != PENDING:
                    continue
                if future._needs is not None or future._objects is not None:
                    ready = self._ready(call)
                    if ready is None:
                        continue
                    groups.add(ready)
                    payload = ready[1]
                else:
                    number, calls = first.get(kind) or groups.new(kind)
                    future._task = number
                    calls.append(call)
                room -= len(payload)
                if room < 0:
                    break
            for kind, calls in groups.all:
                self._submit_group(kind, calls)

    def _ready(self, call: Call) -> Optional[Call]:
        """A call as it is submitted: with the values that it takes and the dispatcher may
        have forgotten. ``None`` if it cannot be made, or has to be made ready by another
        thread first; the lock is held."""
        kind, payload, future = call
        uses = future._objects
        if (self._again and self._takes_again(future)) or (uses and uses.waits_for_caches()):
            self._make_ready(call)
            return None
        try:
            for need in _dataflow.upstream(future):
                cause = need._exception or self._unsent.get(need)
                if cause is not None or need.cancelled():
                    raise _dataflow.failure_of(need, cause)
                if not self._is_submitted(need):
                    # It was made ready later than this call was queued: this one is
                    # queued behind it.
                    self._make_ready(call)
                    return None
            known = self._known(future)
            places = [place for place, _ in known]
            if not known or places == list(_dataflow.places_given(payload)):
                return call
            if len(known) > FEW_VALUES or any(need in self._long for _, need in known):
                self._make_ready(call)
                return None
            payload = _dataflow.without_given(payload)
            payload = _dataflow.with_given(payload, known, future, self)
        except Exception as exception:
            self._unsent[future] = exception
            return None
        return _with_data(kind, future), payload, future

    def _known(self, future: Future[Any]) -> List[Tuple[int, Future[Any]]]:
        """The calls whose values a call takes, with their places, that have ended and
        that the dispatcher may have forgotten; the lock is held."""
        return [
            (place, need)
            for place, need in enumerate(future._needs or ())
            if need._task not in self._pending and self._has_ended(need)
        ]

    def _is_submitted(self, future: Future[Any]) -> bool:
        """Whether the dispatcher knows a call, or will before what is put together now, or
        the call has ended; the lock is held."""
        task = future._task
        is_with_these = task is not None and task < 0
        return is_with_these or task in self._pending or self._has_ended(future)

    def _has_ended(self, future: Future[Any]) -> bool:
        """Whether a call has ended, if only with an object that is still fetched.

        The fetching thread ends a future before it takes the future from those that
        arrive, without this session's lock: who asks in the other order may find neither.
        """
        return future in self._arriving or future.done()

    def _has_value(self, future: Future[Any]) -> bool:
        """Whether the value of a call is known, if only as an object; asked in the order
        of :meth:`_has_ended`."""
        return future in self._arriving or _dataflow.has_value(future)

    def _make_ready(self, call: Call) -> None:
        """Has another thread make a call ready; the lock is held."""
        self._again[call[2]] = call
        if len(self._again) == 1:
            threading.Thread(target=self._submit_again, daemon=True, name="falkon").start()

    def _takes_again(self, future: Future[Any]) -> bool:
        """Whether it takes values of calls that are about to be made again; the
        lock is held."""
        return any(need in self._again for need in _dataflow.upstream(future))

    def _is_made_again(self, future: Future[Any], outcome: Message) -> bool:
        """Whether a call that was not made is made again, with the values that it
        takes as objects: those that it takes are known here, but too much for one
        message together, or it takes the value of such a call."""
        with self._lock:
            call = self._wide.pop(future._task or 0, None)
            if call is None or future._state != PENDING or self.error is not None:
                return False
            if outcome[0] == NO_INPUT:
                needs = future._needs or ()
                if not needs or not all(map(self._has_value, needs)):
                    return False
            elif any(need.done() and not _dataflow.has_value(need)
                     for need in _dataflow.upstream(future)):  # fmt: skip
                return False
            self._pending.pop(future._task or 0, None)
            future._task = None
            self._make_ready(call)
        return True

    def _submit_again(self) -> None:
        """Makes calls ready, and submits them."""
        while True:
            with self._lock:
                if not self._again:
                    break
                # It stays there until it is queued: others may take its value.
                kind, payload, future = next(iter(self._again.values()))
                needs = future._needs or ()
                has_all = bool(needs) and all(map(self._has_value, needs))
                known = list(enumerate(needs)) if has_all else self._known(future)
            error: Optional[BaseException] = None
            try:
                if known:
                    payload = _dataflow.without_given(payload)
                    payload = _dataflow.with_given(payload, known, future, self)
                    if has_all:
                        future._needs = None
                self._place(future)
                kind = _with_data(kind, future)
            except BaseException as raised:
                error = raised
            with self._lock:
                if self._again.pop(future, None) is None:
                    break  # The session is lost.
                if error is not None:
                    self._unsent[future] = error
                elif self.error is None:
                    self._queue.append((kind, payload, future))
                    self._submit_queued()
            self._end_unsent()

    def _place(self, future: Future[Any]) -> None:
        """Puts what a call reads into caches, if it is in none; waits for an executor."""
        uses, caches = future._objects, self.objects.caches
        if uses is None or caches is None:
            return
        pause = EXECUTOR_SECONDS[0]

        def wait() -> None:
            nonlocal pause
            with self._lock:
                self._check()
                if future._state != PENDING:
                    raise CancelledError
                self._answered.wait(pause)
            pause = min(2 * pause, EXECUTOR_SECONDS[1])

        for stored in list(uses.stored):
            caches.place(stored, wait)

    def executors(self) -> Iterator[Message]:
        """The executors that are connected (docs/protocol.md)."""
        after: Optional[Message] = None
        while True:
            status = self.ask(STATUS, self.connection.instance, after)[2]
            yield from (one for one in status[STATUS_EXECUTORS] if one[EXECUTOR_CONNECTED])
            after = status[STATUS_NEXT]
            if after is None:
                return

    def _has_executor(self) -> Optional[bool]:
        """Whether an executor is connected; ``None`` if that cannot be asked now."""
        if self.is_receiving() or self.connection.is_away:
            return None
        return next(self.executors(), None) is not None

    def _submit_group(self, kind: Kind, calls: List[Call]) -> None:
        first, count = self._next_task, len(calls)
        self._next_task = first + count
        payloads = [call[1] for call in calls]
        task, pending = first, self._pending
        after: List[Message] = []
        for _, _, future in calls:
            future._task = task
            pending[task] = future
            needs, uses = future._needs, future._objects  # Another thread may cancel it.
            if needs is not None or uses is not None:
                taken = [need._task for need in needs or () if need._task in pending]
                waits = [call._task for call in uses.waits if call._task in pending] if uses else []
                if taken or waits:
                    after.append([task - first, taken + waits, len(taken)])
                    if len(taken) >= self._wide_from or (
                        self._wide and any(before in self._wide for before in taken + waits)
                    ):
                        self._wide[task] = calls[task - first]
            task += 1
        lengths = struct.pack("<%dI" % count, *map(len, payloads))
        submission = [
            count,
            kind.template,
            [1, [b"".join(payloads), lengths]],
            [kind.task_class],
            [[count, 0]],
            None,
            after,
            declared(calls) if kind.has_data else None,
        ]
        instance = self.connection.instance
        self._sent[self.connection.request(
            SUBMIT, instance, first, self._client, submission
        )] = calls

    def _end_unsent(self) -> None:
        """Ends the futures of calls that cannot be made; the lock is not held."""
        while self._unsent:
            end_all([self._unsent.popitem() for _ in range(len(self._unsent))])
        self._look_whether_done()

    def _look_whether_done(self) -> None:
        with self._lock:
            done = self._closing and self._is_idle()
        if done:
            self._leave()

    def _is_over(self) -> bool:
        """Whether nothing is missing that another connection could bring."""
        return self.error is not None or self._farewell is not None

    def _is_idle(self) -> bool:
        return not (
            self._pending
            or self._queue
            or self._returned
            or self._unsent
            or self._again
            or self._arriving
        )

    def cancel(self, future: Future[Any]) -> None:
        """Ends a call whose outcome nobody wants any more."""
        with self._lock:
            task = future._task
            if task is not None and self.error is None and task in self._pending:
                self._cancel_runs([[task, 1]])
            if future in self._again:
                self._answered.notify_all()

    def cancel_waiting(self, started: int) -> None:
        """Cancels every call that is not on its way to be made; the first
        ``started`` are."""
        with self._lock:
            tasks = sorted(self._pending)[started:]
            keep = max(0, started - len(self._pending))
            waiting = [self._queue.pop()[2] for _ in range(len(self._queue) - keep)]
            pending = [self._pending[task] for task in tasks]
            waiting += [call[2] for _, calls in self._returned for call in calls]
            waiting += self._again
        for future in waiting:
            future.cancel()
        if self.is_receiving():
            # It is a callback that asks: an answer would not be heard.
            for future in pending:
                future.cancel()
            return
        try:
            self._cancel_unstarted(tasks)
        except SessionLost:
            if self.connection.is_away:
                # Nobody can say which of them are being made.
                for future in pending:
                    future.cancel()
        except TaskFailed:
            pass  # The instance is gone.

    def _cancel_unstarted(self, tasks: List[int]) -> None:
        """Cancels those of these calls that are not being made."""
        at = 0
        while at < len(tasks):
            count = tasks[-1] - tasks[at] + 1
            answer = self.ask(TASKS, self.connection.instance, tasks[at], count, may_wait=False)
            infos = answer[2]
            if not infos:
                return
            for info in infos:
                if info[2] in ("waiting", "ready"):
                    found = self._pending.get(info[0])
                    if found is not None:
                        found.cancel()
            last = infos[-1][0]
            while at < len(tasks) and tasks[at] <= last:
                at += 1

    def _cancel_runs(self, runs: List[List[int]]) -> None:
        self.connection.request(CANCEL, self.connection.instance, [1, runs])

    # Ending.

    def pending(self) -> int:
        """Calls that have not ended."""
        with self._lock:
            returned = sum(len(calls) for _, calls in self._returned)
            waiting = len(self._queue) + returned + len(self._again) + len(self._arriving)
            return len(self._pending) + waiting

    def close_when_done(self) -> None:
        """Takes no more calls, and ends when those there are have ended."""
        with self._lock:
            self._closing = True
            if not self._is_idle():
                return
        self._leave()

    def _leave(self) -> None:
        """All is done: the dispatcher need not keep anything, and that is it."""
        if self.error is None and self._farewell is None:
            self.objects.bring()
        with self._lock:
            connection = self.connection
            if connection.access is None or connection.is_away or self.error is not None:
                connection.hang_up()
            elif self._farewell is None:
                self._farewell = connection.request(DESTROY, connection.instance)

    def close(self) -> None:
        """Ends, whatever is going on, and waits until nothing is left."""
        self.connection.hang_up()
        self.join()

    def join_or_give_up(self) -> int:
        """Waits until it has ended, but not for a dispatcher that is gone. Returns how many
        calls are given up."""
        while self._receiver.is_alive() and not self.is_receiving():
            self._receiver.join(AWAY_LOOK_SECONDS)
            if self.connection.away_seconds() > GIVE_UP_AWAY_SECONDS:
                given_up = self.pending()
                self.close()
                return given_up
        self.join()
        return 0

    def join(self) -> None:
        """Waits until it has ended."""
        if not self.is_receiving():
            self._receiver.join()
            self.connection.program.wait()

    def forget(self) -> None:
        """In a process that was forked: lets go of what belongs to the other."""
        self.connection.forget()
        self._lock = self.connection.lock
        self._answered = threading.Condition(self._lock)
        self.objects.forget()
        self.error = SessionLost("this process was forked: it has no part in its parent's calls")

    def _lost(self, reason: str, error: Optional[BaseException] = None) -> None:
        with self._lock:
            if self.error is None:
                self.error = error or SessionLost(reason)
            error = self.error
            ended = list(self._pending.values()) + [call[2] for call in self._queue]
            ended += [call[2] for _, calls in self._returned for call in calls]
            ended += self._unsent
            ended += self._again
            ended += self._arriving.give_up()
            self._again.clear()
            self._wide.clear()
            self._pending.clear()
            self._queue.clear()
            self._sent.clear()
            self._returned.clear()
            self._unsent.clear()
            self._answered.notify_all()
        end_all([(future, error) for future in ended])

    # Hearing.

    def _heard(self, message: Message) -> None:
        tag = message[0]
        if tag == RESULTS:
            self._take_results(message[1])
            return
        if tag == GONE:
            self._lost("", SessionLost("another client has destroyed the instance"))
            self.connection.hang_up()
            return
        with self._lock:
            if message[1] == self._farewell:
                self.connection.hang_up()
            is_of_submission = message[1] in self._sent
            answer = self._answers.get(message[1])
            if answer is not None:
                answer.append(message)
                self._answered.notify_all()
        if is_of_submission:
            self._answer_to_submission(message)

    def _answer_to_submission(self, message: Message) -> None:
        if message[0] == REFUSED:
            self._refused(message)
            return
        with self._lock:
            del self._sent[message[1]]
            self._pause = BUSY_SECONDS[0]
            self._batch_calls = min(2 * self._batch_calls, BATCH_CALLS)
            if self._queue:
                self._submit_queued()
        if self._unsent:
            self._end_unsent()

    def _refused(self, message: Message) -> None:
        """A submission was not taken, and nor are those behind it. If that is for
        one of its calls, the others are submitted without it."""
        reason = message[2]
        kind = reason[1][0] if reason[0] == 0 else None
        is_final = kind not in (BUSY, GAP, NO_ROOM)
        if kind == NO_ROOM:
            self._waits_for_room(message)
        lost: List[Future[Any]] = []
        with self._lock:
            calls = self._sent.pop(message[1])
            first = calls[0][2]._task or 0
            for _, _, future in calls:
                self._pending.pop(future._task or 0, None)
                future._task = None
            if is_final and len(calls) > 1 and concerns_its_calls(reason):
                self._batch_calls = (len(calls) + 1) // 2
                is_final = False
            if kind == GAP:
                # The dispatcher knows best what comes next.
                self._next_task = reason[1][1]
                lost = self._take_lost(self._next_task)
            elif not is_final or not self._sent:
                # Submissions behind it, if any, are refused for the gap.
                self._next_task = min(self._next_task, first)
            if is_final:
                for _, _, future in calls:
                    text = "the dispatcher refused the call: %s" % refusal(message)
                    self._unsent[future] = TaskFailed(text)
            else:
                self._returned.append((first, calls))
        self._end_lost(lost)
        if is_final:
            self._end_unsent()
        else:
            self._try_later()

    def _take_lost(self, expected: int) -> List[Future[Any]]:
        """Calls that the dispatcher had accepted and does not know any more, as
        its next is number ``expected``; the lock is held."""
        sent = {call[2]._task for calls in self._sent.values() for call in calls}
        lost = [task for task in self._pending if task >= expected and task not in sent]
        return [self._pending.pop(task) for task in lost]

    def _end_lost(self, lost: List[Future[Any]]) -> None:
        end_all([(future, CallLost(LOST_TEXT)) for future in lost])
        if lost:
            self._end_unsent()

    def _resumes(self, ask: Callable[..., Message]) -> None:
        """There is another connection, and a dispatcher that may have been
        started again: finds out what it has lost."""
        with self._lock:
            sent = {call[2]._task for calls in self._sent.values() for call in calls}
            accepted = [task for task in self._pending if task not in sent]
        if not accepted:
            return
        instance = self.connection.instance
        answer = ask(TASKS, instance, max(accepted), 1)
        if answer[0] != REFUSED and answer[2]:
            return
        answer = ask(STATUS, instance, None)
        if answer[0] == REFUSED or not answer[2][3]:
            return  # Who subscribes hears why.
        total = answer[2][3][0][5][0]
        with self._lock:
            lost = self._take_lost(total)
        self._end_lost(lost)

    def _try_later(self) -> None:
        timer = threading.Timer(self._pause, self._try_again)
        self._pause = min(2 * self._pause, BUSY_SECONDS[1])
        timer.daemon = True
        timer.start()

    def _try_again(self) -> None:
        with self._lock:
            if self._sent and self._returned:
                # Those are refused as well, as they do not follow.
                self._try_later()
            elif self.error is None:
                # In their order: some may take what others return.
                for _, calls in sorted(self._returned, key=itemgetter(0), reverse=True):
                    self._queue.extendleft(reversed(calls))
                self._returned.clear()
                self._submit_queued()
        self._end_unsent()

    def _take_results(self, delivery: Message) -> None:
        _, start, results, _, _, _ = delivery
        pending = self._pending
        ended = []
        count = 0
        with self._lock:
            for run in results:
                first, length = run[0], run[1]
                count += length
                for task in range(first, first + length):
                    future = pending.get(task)
                    if future is not None:
                        ended.append((task, future, run))
        for _, future, run in ended:
            try:
                self._end(future, run)
            except BaseException as error:
                # It costs that call alone, whatever its value or its future does.
                LOG.warning("a call of %s could not be ended", future._name, exc_info=True)
                end_all([(future, error)])
        with self._lock:
            # As long as a call is pending here, the dispatcher has its value.
            for task, _, _ in ended:
                pending.pop(task, None)
                if self._wide:
                    self._wide.pop(task, None)
            self.connection.received(start + count)
            done = self._closing and self._is_idle()
        if done:
            self._leave()

    def _fetch(self, url: str) -> Any:
        from ._large import fetched

        return fetched(self, url)

    def _value_of(self, future: Future[Any], data: bytes) -> Any:
        if self.access is None and is_named(data):
            return self.objects.take(future, data)
        return value_of(data)

    def _end(self, future: Future[Any], run: Message) -> None:
        outcome, detail = run[2], run[9]
        if detail is not None:
            self._output.of_call(detail)
        tag = outcome[0]
        if tag == EXIT and outcome[1] == 0:
            if detail is not None and self.access is not None and is_in_cache(detail[3]):
                self._arriving.add(future, self.objects.returned_in_cache(future, detail[3]))
                return
            try:
                value = self._value_of(future, detail[3]) if detail is not None else None
                if detail is not None and len(detail[3]) > SHORT_VALUE_BYTES:
                    self._long.add(future)
            except BaseException as exception:
                future._end(FINISHED, None, exception)
            else:
                future._end(FINISHED, value, None)
        elif tag == CANCELLED:
            future._end(CANCELLED_AND_NOTIFIED, None, None)
        elif tag in (NO_INPUT, UPSTREAM_FAILED) and self._is_made_again(future, outcome):
            pass
        elif tag == UPSTREAM_FAILED:
            upstream = _dataflow.upstream(future)
            failed = [need for need in upstream if need._task == outcome[1]]
            # One that was to be made again, and was not, has its number no more.
            failed += [one for one in upstream if one.done() and not _dataflow.has_value(one)]
            error = _dataflow.failure_of(failed[0]) if failed else _error(outcome, detail)
            future._end(FINISHED, None, error)
        else:
            error = _error(outcome, detail)
            if isinstance(error, InitializerFailed):
                self._lost("", error)
            future._end(FINISHED, None, error)


def _with_data(kind: Kind, future: Future[Any]) -> Kind:
    """The kind of a call that may have come to read objects."""
    uses = future._objects
    return kind.with_data() if uses and uses.inputs else kind


def end_all(failed: Iterable[Tuple[Future[Any], Optional[BaseException]]]) -> None:
    """Ends the futures of calls that failed; what a callback of one raises does not
    keep the others from it."""
    raised: Optional[BaseException] = None
    for future, error in failed:
        try:
            future._end(FINISHED, None, error)
        except BaseException as exception:
            LOG.exception("the future of a call of %s could not be ended", future._name)
            raised = exception
    if raised is not None and threading.current_thread() is threading.main_thread():
        raise raised


class Groups:
    """Calls in the order in which they are submitted: all of a kind together,
    but none before a call whose value it takes. Until they have numbers, those of
    the first group have -1 for one, of the second -2, and so on."""

    __slots__ = ("all", "first", "_of_kind")

    def __init__(self) -> None:
        self.all: List[Tuple[Kind, List[Call]]] = []
        self.first: Dict[Kind, Tuple[int, List[Call]]] = {}
        """The first group of each kind, with the number that stands for it."""
        self._of_kind: Dict[Kind, List[int]] = {}

    def new(self, kind: Kind) -> Tuple[int, List[Call]]:
        """Begins a group."""
        calls: List[Call] = []
        self._of_kind.setdefault(kind, []).append(len(self.all))
        self.all.append((kind, calls))
        return self.first.setdefault(kind, (-len(self.all), calls))

    def add(self, call: Call) -> None:
        """Adds a call to the first group of its kind that does not come before
        those whose values it takes."""
        kind, _, future = call
        least = 0
        for need in _dataflow.upstream(future):
            if need._task is not None and need._task < 0:
                least = max(least, -1 - need._task)
        places = self._of_kind.get(kind, ())
        at = bisect_left(places, least) if least else 0
        if at == len(places):
            self.new(kind)
            place = len(self.all) - 1
        else:
            place = places[at]
        future._task = -1 - place
        self.all[place][1].append(call)


def instance_options(access: Optional[str], away_seconds: float) -> Message:
    """How a session's instance is to behave (docs/protocol.md)."""
    if access is None:
        # The one executor there is, and ever will be, offers it or nobody does.
        return ["", False, 0, False, MAX_COMPUTE_UTIL, None, KEEP_AS_DISPATCHER]
    # By the time that the dispatcher gives it up, the client has given up too.
    lease = away_seconds + max(away_seconds, LEASE_SECONDS_SPARE)
    lease_micros = int(lease * 1e6) if lease < 1e9 else None
    return ["", False, None, False, MAX_COMPUTE_UTIL, lease_micros, KEEP_AS_DISPATCHER]


def _too_long(payload: bytes) -> TaskFailed:
    return TaskFailed(
        "the arguments are %d bytes as a pickle; at most %d bytes travel with a call: "
        "write them to a file and pass its name" % (len(payload), PAYLOAD_BYTES)
    )


def _error(outcome: Message, detail: Optional[Message]) -> BaseException:
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
    return TaskFailed(error or "it exited with code %d" % outcome[1])


def _receive(session: Session) -> None:
    """Hears what is said until the session ends."""
    connection = session.connection
    reason = ""
    try:
        for message in connection.messages(session._is_over):
            session._heard(message)
    except SessionLost as error:
        session._lost("", error)
    except BaseException as error:
        reason = "%s: %s" % (type(error).__name__, error)
    finally:
        connection.hang_up()
        if not session._closing or session._pending:
            said = reason or connection.program.last_words()
            session._lost("the calls cannot be made any more: %s" % said)
        else:
            session._lost("the session has been closed")
        connection.close()
        session.objects.close()


_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forked() -> None:
    _futures._lock = threading.Lock()
    for session in list(_sessions):
        session.forget()


os.register_at_fork(after_in_child=_forked)
