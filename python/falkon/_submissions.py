"""Calls on their way to a dispatcher, and those that it has."""

import os
import struct
from collections import deque
from operator import itemgetter
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Tuple

from ._arguments import declared
from ._connection import CANCEL, SUBMIT, Connection, Message
from ._errors import GAP, TaskFailed, concerns_its_calls, is_for_now, refusal
from ._everywhere import Alone, First
from ._futures import PENDING, Future
from ._kinds import Call, Groups, Kind

BATCH_CALLS = 8192
"""Calls that are submitted together at most; in one message as well."""
BATCH_BYTES = 4 << 20
"""Payloads that are submitted together, beyond the last."""
BATCHES_UNDER_WAY = 4
"""Batches that are not accepted yet, before more wait to become larger ones."""
BUSY_SECONDS = (0.05, 2.0)
"""First and longest pause before submissions that were refused for now are made again."""
ANY_EXECUTOR: Message = [0, 0, 0, []]
"""What an executor is to offer for a call that is made everywhere: nothing."""

WIDE_VALUES_HERE = 10
"""Values of at most 1 MiB, larger ones being objects, that may be too long together
for one message (``ROW_WITH_VALUES_BYTES_MAX`` of the dispatcher)."""
WIDE_VALUES = 1
"""With a dispatcher between, one may be: values longer than 8 MiB are in a cache."""


class Submissions:
    """The calls of a session from their submission to their end.

    A call is queued; sent; pending until it has ended; returned in between, if its
    submission was refused for now; or failed, if it cannot be submitted. The session's
    lock is held during every method.
    """

    def __init__(
        self,
        connection: Connection,
        ready: Callable[[Call], Optional[Call]],
        is_here: bool = False,
    ):
        self._connection = connection
        self._ready = ready
        """Gives the form in which a call with needs or objects is submitted; ``None`` if
        the call has failed, or is queued again later."""
        self._queue: Deque[Call] = deque()
        self._sent: Dict[int, List[Call]] = {}
        """Submissions that are not accepted yet, by their requests."""
        self._returned: List[Tuple[int, List[Call]]] = []
        """Submissions that are to be made again, with the first of their numbers."""
        self._failed: Dict[Future[Any], BaseException] = {}
        """Calls that cannot be made, until their futures end."""
        self._pending: Dict[int, Future[Any]] = {}
        self._wide: Dict[int, Call] = {}
        """Calls whose values may be too much for one message together, and calls that
        take theirs: these are made again with values that are objects."""
        self._wide_from = WIDE_VALUES_HERE if is_here else WIDE_VALUES
        self._alone: Optional[Alone] = None
        """The submission that nothing is sent behind, until it is answered."""
        self._next_task = 0
        self._client = int.from_bytes(os.urandom(8), "little") or 1
        """Distinguishes calls that are submitted again from another client's."""
        self._pause = BUSY_SECONDS[0]
        self._batch_calls = BATCH_CALLS
        """Calls that are submitted together now: fewer while one is looked for for
        which a submission was refused."""

    # Submitting.

    def add(self, call: Call) -> bool:
        """Queues a call, and sends it at once if nothing is under way. Returns whether
        :meth:`take_failed` gives calls that cannot be made."""
        self._queue.append(call)
        if not self._sent:
            self.send()
        return bool(self._failed)

    def add_all(self, calls: Iterable[Call]) -> bool:
        """Queues calls in order, and sends them as far as batches may be under way. Returns
        whether :meth:`take_failed` gives calls that cannot be made."""
        self._queue.extend(calls)
        self.send()
        return bool(self._failed)

    def send(self) -> None:
        """Sends queued calls, as far as batches may be under way."""
        queue = self._queue
        while (
            queue
            and len(self._sent) < BATCHES_UNDER_WAY
            and not self._returned
            and self._alone is None
        ):
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
                    if type(future) is First:
                        if groups.all:
                            queue.appendleft(ready)
                        else:
                            self._send_group(ready[0], [ready], everywhere=[False, ANY_EXECUTOR, [], None, None])
                        break
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
                self._send_group(kind, calls)

    def _send_group(
        self, kind: Kind, calls: List[Call], everywhere: Optional[Message] = None
    ) -> None:
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
            everywhere,
        ]
        connection = self._connection
        request = connection.request(
            SUBMIT, connection.instance, first, self._client, submission
        )
        self._sent[request] = calls
        if everywhere:
            self._alone = Alone(request, calls[0])

    # Answers to submissions.

    def is_of_submission(self, request: int) -> bool:
        """Whether a request was a submission that is not answered yet."""
        return request in self._sent

    def accepted(self, request: int, count: int) -> List[Message]:
        """A submission was accepted, and is ``count`` tasks: others can follow. Returns
        results of these tasks that came before this answer."""
        del self._sent[request]
        self._pause = BUSY_SECONDS[0]
        self._batch_calls = min(2 * self._batch_calls, BATCH_CALLS)
        alone, results = self._alone, []
        if alone is not None and alone.request == request:
            self._alone, results = None, alone.results
            first = alone.first._task or 0
            # Of one that was accepted before, and has ended since, the number may not be known.
            count = max(1, count, *(run[0] + run[1] - first for run in results))
            for other in alone.first.accepted(count):
                self._pending[other._task or 0] = other
            self._next_task = first + count
        if self._queue:
            self.send()
        return results

    def refused(self, message: Message) -> Tuple[List[Future[Any]], bool]:
        """A submission was refused, and so are those behind it. If the reason is one of
        its calls, the others are submitted without that one.

        Returns the futures of calls that the dispatcher had accepted and does not know any
        more; and whether the calls of the submission have failed, which are otherwise
        submitted again."""
        reason = message[2]
        kind = reason[1][0] if reason[0] == 0 else None
        is_final = kind != GAP and not is_for_now(reason)
        lost: List[Future[Any]] = []
        calls = self._sent.pop(message[1])
        if self._alone is not None and self._alone.request == message[1]:
            self._alone = None
        first = calls[0][2]._task or 0
        for _, _, future in calls:
            self.withdraw(future)
        if is_final and len(calls) > 1 and concerns_its_calls(reason):
            self._batch_calls = (len(calls) + 1) // 2
            is_final = False
        if kind == GAP:
            # The dispatcher knows best what comes next.
            self._next_task = reason[1][1]
            lost = self.lost_from(self._next_task)
        elif not is_final or not self._sent:
            # Submissions behind it, if any, are refused for the gap.
            self._next_task = min(self._next_task, first)
        if is_final:
            text = "the dispatcher refused the call: %s" % refusal(message)
            for _, _, future in calls:
                self.fail(future, TaskFailed(text))
        else:
            self._returned.append((first, calls))
        return lost, is_final

    def pause(self) -> float:
        """Seconds until submissions that were refused for now are made again; longer
        each time."""
        pause = self._pause
        self._pause = min(2 * pause, BUSY_SECONDS[1])
        return pause

    def must_wait(self) -> bool:
        """Whether others of the submissions that were returned will be refused as well, as
        they do not follow."""
        return bool(self._sent and self._returned)

    def send_again(self) -> None:
        """Makes the submissions again that were returned."""
        # In their order: some may take what others return.
        for _, calls in sorted(self._returned, key=itemgetter(0), reverse=True):
            self._queue.extendleft(reversed(calls))
        self._returned.clear()
        self.send()

    # Calls that the dispatcher has.

    def accepted_tasks(self) -> List[int]:
        """The numbers of pending calls whose submissions were accepted."""
        sent = {call[2]._task for calls in self._sent.values() for call in calls}
        return [task for task in self._pending if task not in sent]

    def lost_from(self, expected: int) -> List[Future[Any]]:
        """Withdraws calls that the dispatcher had accepted and does not know any more, as
        it expects task number ``expected`` next."""
        lost = [task for task in self.accepted_tasks() if task >= expected]
        return [self._pending.pop(task) for task in lost]

    def ended(self, runs: List[Message]) -> Tuple[int, List[Tuple[int, Future[Any], Message]]]:
        """How many tasks runs of results are about, and the pending ones of them, each
        with its run."""
        pending = self._pending
        ended = []
        count = 0
        for run in runs:
            first, length = run[0], run[1]
            count += length
            if self._alone is not None and self._alone.holds(run):
                continue
            for task in range(first, first + length):
                future = pending.get(task)
                if future is not None:
                    ended.append((task, future, run))
        return count, ended

    def remove(self, ended: List[Tuple[int, Future[Any], Message]]) -> None:
        """Removes calls whose futures have ended. As long as a call is pending here, the
        dispatcher has its value."""
        pending = self._pending
        for task, _, _ in ended:
            pending.pop(task, None)
            if self._wide:
                self._wide.pop(task, None)

    def is_pending(self, future: Future[Any]) -> bool:
        """Whether the dispatcher knows a call that has not ended, or will."""
        return future._task in self._pending

    def is_submitted(self, future: Future[Any]) -> bool:
        """Whether the dispatcher knows a call, or will before the calls of the batch that
        is put together now."""
        task = future._task
        return (task is not None and task < 0) or task in self._pending

    def future_of(self, task: int) -> Optional[Future[Any]]:
        """The future of a pending call."""
        return self._pending.get(task)

    def withdraw(self, future: Future[Any]) -> None:
        """Takes its number from a call that is submitted again, or that has failed."""
        self._pending.pop(future._task or 0, None)
        future._task = None

    def take_wide(self, future: Future[Any]) -> Optional[Call]:
        """A call whose values may have been too much for one message together."""
        return self._wide.pop(future._task or 0, None)

    def cancel(self, future: Future[Any]) -> None:
        """Has the dispatcher end a call, if it is pending."""
        if future._task is not None and self.is_pending(future):
            connection = self._connection
            connection.request(CANCEL, connection.instance, [1, [[future._task, 1]]])

    def behind(self, started: int) -> Tuple[List[int], List[Future[Any]], List[Future[Any]]]:
        """The calls behind the first ``started``: numbers and futures of those that are
        pending, and futures of those that are not, which are not submitted any more."""
        tasks = sorted(self._pending)[started:]
        keep = max(0, started - len(self._pending))
        waiting = [self._queue.pop()[2] for _ in range(len(self._queue) - keep)]
        waiting += [call[2] for _, calls in self._returned for call in calls]
        return tasks, [self._pending[task] for task in tasks], waiting

    # Calls that fail, and the end.

    def fail(self, future: Future[Any], error: BaseException) -> None:
        """Notes that a call cannot be made; :meth:`take_failed` gives it back."""
        self._failed[future] = error

    def failure(self, future: Future[Any]) -> Optional[BaseException]:
        """Why a call cannot be made whose future has not ended yet."""
        return self._failed.get(future)

    def has_failed(self) -> bool:
        """Whether futures are to be ended that :meth:`take_failed` gives."""
        return bool(self._failed)

    def take_failed(self) -> List[Tuple[Future[Any], BaseException]]:
        """The futures of calls that cannot be made, which are to be ended with these
        errors. The lock need not be held."""
        return [self._failed.popitem() for _ in range(len(self._failed))]

    def __len__(self) -> int:
        """Calls that have not ended, without those that have failed."""
        returned = sum(len(calls) for _, calls in self._returned)
        return len(self._pending) + len(self._queue) + returned

    def has_pending(self) -> bool:
        """Whether the dispatcher has calls that have not ended."""
        return bool(self._pending)

    def is_idle(self) -> bool:
        """Whether every call has ended."""
        return not (self._pending or self._queue or self._returned or self._failed)

    def give_up(self) -> List[Future[Any]]:
        """Forgets all calls; returns their futures."""
        left = list(self._pending.values()) + [call[2] for call in self._queue]
        left += [call[2] for _, calls in self._returned for call in calls]
        left += self._failed
        for owned in (self._wide, self._pending, self._queue, self._sent, self._returned, self._failed):
            owned.clear()  # type: ignore[attr-defined]
        self._alone = None
        return left
