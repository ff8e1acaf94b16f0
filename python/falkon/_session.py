"""A client's conversation with a dispatcher (docs/protocol.md).

A session is where its parts meet: questions, submissions, calls that are made ready,
and outcomes. Each part owns its state, and one lock guards all of them.
"""

import logging
import os
import threading
import time
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
)

from . import _futures
from ._access import access_to
from ._arriving import Arriving
from ._connection import (
    CREATE,
    DESTROY,
    GONE,
    REFUSED,
    RESULTS,
    STATUS,
    SUBSCRIBE,
    TASKS,
    Connection,
    Message,
)
from ._errors import (
    NO_ROOM,
    OVER_BYTES,
    OVER_TASKS,
    REQUEST,
    CallLost,
    SessionLost,
    TaskFailed,
    refusal,
)
from ._futures import FINISHED, PENDING, Future
from ._kinds import Call, Kind
from ._objects import PAYLOAD_BYTES, Objects
from ._outcomes import Outcomes, end_all
from ._output import Output, Show
from ._preparing import Preparing
from ._program import Program, folder_options
from ._questions import AWAY_LOOK_SECONDS, Questions
from ._references import Maker, has_value, upstream
from ._submissions import BUSY_SECONDS, Submissions

if TYPE_CHECKING:
    from ._early import Early

MAX_COMPUTE_UTIL = [[3], 0, 900, 0]
"""The dispatch policy: name, window, threshold, replicas."""
LEASE_SECONDS_SPARE = 60.0
"""How much longer than a client looks for its dispatcher, at least, the dispatcher keeps
the instance of a client that is away."""
KEEP_AS_DISPATCHER = [0]
LOST_TEXT = (
    "the dispatcher does not know this call any more: it was started again, and had lost the "
    "end of its journal; whether the call was made is not known (falkon start --durability "
    "machine loses nothing)"
)
STATUS_EXECUTORS, STATUS_NEXT = 4, 7
EXECUTOR_CONNECTED = 6
"""Fields of a status, and of an executor in it (docs/protocol.md)."""
GIVE_UP_AWAY_SECONDS = 1.0
"""How long a dispatcher may be away before its calls are given up by an interpreter that
ends, or a shutdown that cancels."""

LOG = logging.getLogger("falkon")


class Session(Maker):
    """An instance at a dispatcher, and the calls that are made through it."""

    def __init__(
        self,
        options: List[str],
        output: Optional[Show],
        access: Optional[str] = None,
        away_seconds: float = 0.0,
        early: Optional["Early"] = None,
        starts: Callable[[List[str]], Program] = Program,
        clusters: Tuple[str, ...] = (),
    ):
        self.access = access
        self.clusters = clusters
        self.objects = Objects(access, early.folder if early else None, not clusters)
        for cluster in clusters:
            options = [*options, "--access", cluster]
        if self.objects.is_here:
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
        self._questions = Questions(self.connection, self._check)
        self._submissions = Submissions(
            self.connection, lambda call: self._preparing.ready(call), self.objects.is_here
        )
        self._outcomes = Outcomes(
            self.objects,
            Output(output, self.objects.overflow),
            Arriving(self.fetch, self._look_whether_done),
            self._is_made_again,
        )
        self._preparing = Preparing(
            self,
            self.connection,
            self._submissions,
            self._outcomes,
            self._questions,
            self._end_failed,
        )
        self._has_warned_of_room = False
        self._closing = False
        self._farewell: Optional[int] = None
        """The request with which the session ends."""
        self.error: Optional[BaseException] = None
        """Why no more calls are made, if that is so."""
        self._receiver = threading.Thread(target=_receive, args=(self,), daemon=True, name="falkon")
        _sessions.add(self)
        self._receiver.start()
        try:
            created = self._create(instance_options(access, away_seconds, bool(clusters)))
            self.connection.has_instance(created[2], created[3])
            if self.objects.caches is not None:
                self.objects.caches.instance = created[2]
            self.connection.resumes = self._resumes
            self.ask(SUBSCRIBE, created[2], 0)
        except BaseException:
            self.close()
            raise

    # Questions.

    def ask(self, tag: int, *fields: Any, may_wait: bool = True) -> Message:
        """Makes a request and waits for its answer; for a dispatcher that is gone only
        if it ``may_wait``."""
        return self._questions.ask(tag, *fields, may_wait=may_wait)

    def _create(self, options: List[Any]) -> Message:
        """Creates an instance, as soon as the dispatcher has room for one."""
        pause = BUSY_SECONDS[0]
        while True:
            answer = self._questions.answer(CREATE, (options,))
            if answer[0] != REFUSED:
                return answer
            if not self._is_out_of_room(answer):
                raise TaskFailed("the dispatcher refused: %s" % refusal(answer))
            time.sleep(pause)
            pause = min(2 * pause, BUSY_SECONDS[1])

    def _is_out_of_room(self, refused: Message) -> bool:
        """Whether the dispatcher refuses for want of room; logs a warning the first time."""
        reason = refused[2]
        if reason[0] != REQUEST or reason[1][0] not in (NO_ROOM, OVER_TASKS, OVER_BYTES):
            return False
        if not self._has_warned_of_room:
            self._has_warned_of_room = True
            LOG.warning("waiting: %s", refusal(refused))
        return True

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def is_receiving(self) -> bool:
        """Whether this thread is the one that receives: an answer that it waits for
        would not come."""
        return threading.current_thread() is self._receiver

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

    def fetch(self, url: str) -> Any:
        from ._data import fetched, fetched_from_any

        connection = self.connection
        if self.clusters:
            return fetched_from_any(self.clusters, url)
        access = self.access or ""
        with access_to(access, connection.instance or 0, connection.secret) as (path, keep):
            return fetched(path, keep, url)

    # Submitting.

    def submit(self, kind: Kind, payload: bytes, future: Future[Any]) -> None:
        """Has a call made."""
        if len(payload) > PAYLOAD_BYTES:
            raise _too_long(payload)
        future._session = self
        future._name = kind.name
        with self._lock:
            if self.error is not None:
                raise self.error
            has_failed = self._submissions.add((kind, payload, future))
        if self.connection.interrupted is not None:
            self.connection.raise_interrupted()
        if has_failed:
            self._end_failed()

    def submit_all(self, calls: List[Call]) -> None:
        """Has calls made, in order."""
        with self._lock:
            self._check()
            has_failed = self._submissions.add_all(calls)
        if self.connection.interrupted is not None:
            self.connection.raise_interrupted()
        if has_failed:
            self._end_failed()

    def _end_failed(self) -> None:
        """Ends the futures of calls that cannot be made; the lock is not held."""
        while self._submissions.has_failed():
            end_all(self._submissions.take_failed())
        self._look_whether_done()

    def _is_made_again(self, future: Future[Any], lacks_input: bool) -> bool:
        """Whether a call that was not made is made again, with the values that it takes as
        objects: these are known here, but too much for one message together (it
        ``lacks_input``), or it takes the value of such a call."""
        with self._lock:
            call = self._submissions.take_wide(future)
            if call is None or future._state != PENDING or self.error is not None:
                return False
            if lacks_input:
                needs = future._needs or ()
                if not needs or not all(map(self._outcomes.has_value, needs)):
                    return False
            elif any(need.done() and not has_value(need) for need in upstream(future)):
                return False
            self._submissions.withdraw(future)
            self._preparing.add(call)
        return True

    # Cancelling.

    def cancel(self, future: Future[Any]) -> None:
        with self._lock:
            if self.error is None:
                self._submissions.cancel(future)
            if future in self._preparing:
                self._questions.wake()

    def cancel_waiting(self, started: int) -> None:
        """Cancels every call that is not on its way to be made; the first
        ``started`` are."""
        with self._lock:
            tasks, pending, waiting = self._submissions.behind(started)
            waiting += self._preparing.futures()
        for future in waiting:
            future.cancel()
        if self.is_receiving():
            # A callback cancels: an answer would not be received.
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
        for task, state in self._states(tasks):
            if state in ("waiting", "ready"):
                found = self._submissions.future_of(task)
                if found is not None:
                    found.cancel()

    def states(self, tasks: Iterable[Optional[int]]) -> Dict[int, str]:
        """The states of those of these tasks that have been submitted (docs/protocol.md)."""
        known = sorted(task for task in tasks if task is not None and task >= 0)
        wanted = set(known)
        return {task: state for task, state in self._states(known) if task in wanted}

    def _states(self, tasks: List[int]) -> Iterator[Tuple[int, str]]:
        """The states of tasks, ascending, and of some between them."""
        at = 0
        while at < len(tasks):
            count = tasks[-1] - tasks[at] + 1
            answer = self.ask(TASKS, self.connection.instance, tasks[at], count, may_wait=False)
            infos = answer[2]
            if not infos:
                return
            for info in infos:
                yield info[0], info[2]
            last = infos[-1][0]
            while at < len(tasks) and tasks[at] <= last:
                at += 1

    # Ending.

    def pending(self) -> int:
        """Calls that have not ended."""
        with self._lock:
            return len(self._submissions) + len(self._preparing) + self._outcomes.arriving()

    def _is_idle(self) -> bool:
        return (
            self._submissions.is_idle()
            and not self._preparing
            and not self._outcomes.arriving()
        )

    def close_when_done(self) -> None:
        """Takes no more calls, and ends when those there are have ended."""
        with self._lock:
            self._closing = True
            if not self._is_idle():
                return
        self._leave()

    def _look_whether_done(self) -> None:
        with self._lock:
            done = self._closing and self._is_idle()
        if done:
            self._leave()

    def _leave(self) -> None:
        """All calls have ended: the dispatcher need not keep anything."""
        if self.error is None and self._farewell is None:
            self.objects.bring()
        with self._lock:
            connection = self.connection
            if connection.access is None or connection.is_away or self.error is not None:
                connection.hang_up()
            elif self._farewell is None:
                self._farewell = connection.request(DESTROY, connection.instance)

    def _is_over(self) -> bool:
        """Whether nothing is missing that another connection could bring."""
        return self.error is not None or self._farewell is not None

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
        self._questions.forget()
        self.objects.forget()
        self.error = SessionLost("this process was forked: it has no part in its parent's calls")

    def _lost(self, reason: str, error: Optional[BaseException] = None) -> None:
        """Ends all calls with an error, and makes no more."""
        with self._lock:
            if self.error is None:
                self.error = error or SessionLost(reason)
            error = self.error
            ended = self._submissions.give_up()
            ended += self._preparing.give_up()
            ended += self._outcomes.give_up()
            self._questions.wake()
        end_all([(future, error) for future in ended])

    # Receiving.

    def _receive(self, message: Message) -> None:
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
            is_of_submission = self._submissions.is_of_submission(message[1])
            self._questions.take(message)
        if is_of_submission:
            self._answer_to_submission(message)

    def _answer_to_submission(self, message: Message) -> None:
        if message[0] == REFUSED:
            self._is_out_of_room(message)
            with self._lock:
                lost, is_final = self._submissions.refused(message)
            self._end_lost(lost)
            if is_final:
                self._end_failed()
            else:
                self._try_later()
            return
        with self._lock:
            early = self._submissions.accepted(message[1], message[3])
        if early:
            self._end_calls(early)
        if self._submissions.has_failed():
            self._end_failed()

    def _try_later(self) -> None:
        timer = threading.Timer(self._submissions.pause(), self._try_again)
        timer.daemon = True
        timer.start()

    def _try_again(self) -> None:
        with self._lock:
            if self._submissions.must_wait():
                self._try_later()
            elif self.error is None:
                self._submissions.send_again()
        self._end_failed()

    def _end_lost(self, lost: List[Future[Any]]) -> None:
        end_all([(future, CallLost(LOST_TEXT)) for future in lost])
        if lost:
            self._end_failed()

    def _resumes(self, ask: Callable[..., Message]) -> None:
        """There is another connection, and a dispatcher that may have been
        started again: finds out what it has lost."""
        with self._lock:
            accepted = self._submissions.accepted_tasks()
        if not accepted:
            return
        instance = self.connection.instance
        answer = ask(TASKS, instance, max(accepted), 1)
        if answer[0] != REFUSED and answer[2]:
            return
        answer = ask(STATUS, instance, None)
        if answer[0] == REFUSED or not answer[2][3]:
            return  # The answer to the subscription says why.
        total = answer[2][3][0][5][0]
        with self._lock:
            lost = self._submissions.lost_from(total)
        self._end_lost(lost)

    def _take_results(self, delivery: Message) -> None:
        _, start, results, *_ = delivery
        self._end_calls(results, start)

    def _end_calls(self, results: List[Message], start: Optional[int] = None) -> None:
        """Ends the calls that results are about, which are those from number ``start`` on
        if they have just been received."""
        with self._lock:
            count, ended = self._submissions.ended(results)
        end = self._outcomes.end
        for _, future, run in ended:
            try:
                fatal = end(future, run)
                if fatal is not None:
                    self._lost("", fatal)
                    future._end(FINISHED, None, fatal)
            except BaseException as error:
                # The error costs that call alone, whatever its value or its future does.
                LOG.warning("a call of %s could not be ended", future._name, exc_info=True)
                end_all([(future, error)])
        with self._lock:
            self._submissions.remove(ended)
            if start is not None:
                self.connection.received(start + count)
            done = self._closing and self._is_idle()
        if done:
            self._leave()


def instance_options(
    access: Optional[str], away_seconds: float, has_clusters: bool = False
) -> Message:
    """How a session's instance is to behave (docs/protocol.md)."""
    if has_clusters:
        # Others may come.
        return ["", False, None, False, MAX_COMPUTE_UTIL, None, KEEP_AS_DISPATCHER, False]
    if access is None:
        # The one executor there is, and ever will be, offers it or nobody does.
        return ["", False, 0, False, MAX_COMPUTE_UTIL, None, KEEP_AS_DISPATCHER, False]
    # By the time that the dispatcher gives it up, the client has given up too.
    lease = away_seconds + max(away_seconds, LEASE_SECONDS_SPARE)
    lease_micros = int(lease * 1e6) if lease < 1e9 else None
    return ["", False, None, False, MAX_COMPUTE_UTIL, lease_micros, KEEP_AS_DISPATCHER, False]


def _too_long(payload: bytes) -> TaskFailed:
    return TaskFailed(
        "the arguments are %d bytes as a pickle; at most %d bytes travel with a call: "
        "write them to a file and pass its name" % (len(payload), PAYLOAD_BYTES)
    )


def _receive(session: Session) -> None:
    """Receives messages until the session ends."""
    connection = session.connection
    reason = ""
    try:
        for message in connection.messages(session._is_over):
            session._receive(message)
    except SessionLost as error:
        session._lost("", error)
    except BaseException as error:
        reason = "%s: %s" % (type(error).__name__, error)
    finally:
        connection.hang_up()
        if not session._closing or session._submissions.has_pending():
            reason = reason or connection.program.reason_of_end()
            session._lost("the calls cannot be made any more: %s" % reason)
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
