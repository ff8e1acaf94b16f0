"""Jobs: commands that are followed one by one, for systems that have jobs of their own."""

import itertools
import os
import queue
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from ._commands import CommandKind, Text, command_row, submit_row
from ._errors import CallTimeout, TaskFailed
from ._executor import Executor
from ._futures import Future
from ._output import write_output

KINDS_MAX = 1024
"""Different options of jobs that are kept for the next ones."""

Show = Optional[Callable[[int, bytes], None]]


@dataclass(frozen=True)
class Ended:
    """How a job has ended."""

    number: int
    exit_code: Optional[int] = None
    """Of its process, if that has exited by itself."""
    signal: Optional[int] = None
    """What has killed its process."""
    is_timeout: bool = False
    """Whether it took longer than its ``timeout``."""
    is_cancelled: bool = False
    error: Optional[BaseException] = None
    """Why it has failed, if it has; the text is for people."""


class Jobs:
    """Jobs with numbers, each a command with options of its own.

    ``access``, ``max_workers``, ``output``
        As with :class:`falkon.Executor`.
    ``ended``
        Called with each job that has ended, from the thread that receives; without it
        they are there for :meth:`wait`.
    """

    def __init__(
        self,
        access: Union[None, str, "os.PathLike[str]"] = None,
        max_workers: Optional[int] = None,
        output: Show = write_output,
        ended: Optional[Callable[[Ended], None]] = None,
    ):
        self._executor = Executor(access, max_workers=max_workers, output=output, template=False)
        self._kinds: Dict[str, CommandKind] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._futures: Dict[int, "Future[None]"] = {}
        self._seen: Dict[int, float] = {}
        """When jobs were first seen to run."""
        self._ended: "queue.SimpleQueue[Ended]" = queue.SimpleQueue()
        self._tell = self._ended.put if ended is None else ended

    def submit(
        self,
        argv: Sequence[Text],
        options: Mapping[str, Any],
        number: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[Text] = None,
    ) -> int:
        """Has a command run, with the options of a call; returns its ``number``, the next one
        if none is given."""
        row = command_row(argv, env=env, cwd=cwd)
        kind = self._kind(options)
        if number is None:
            number = next(self._numbers)
        future = submit_row(self._executor, kind, row)
        with self._lock:
            self._futures[number] = future
        found = number
        future.add_done_callback(lambda future: self._has_ended(found, future))
        return number

    def _kind(self, options: Mapping[str, Any]) -> CommandKind:
        key = repr(sorted(options.items()))
        kind = self._kinds.get(key)
        if kind is None:
            kind = CommandKind(self._executor, **options)
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            self._kinds[key] = kind
        return kind

    def _has_ended(self, number: int, future: "Future[None]") -> None:
        with self._lock:
            was_here = self._futures.pop(number, None) is not None
            self._seen.pop(number, None)
        if was_here:
            self._tell(_end_of(number, future))

    def issued(self) -> List[int]:
        """The jobs that have not ended."""
        with self._lock:
            return list(self._futures)

    def running(self) -> Dict[int, float]:
        """The jobs that run now, and for how many seconds they were seen to."""
        with self._lock:
            tasks = {future._task: number for number, future in self._futures.items()}
        states = self._executor._shared.session().states(tasks)
        now = time.monotonic()
        with self._lock:
            found = {}
            for task, state in states.items():
                number = tasks[task]
                if state == "running" and number in self._futures:
                    found[number] = now - self._seen.setdefault(number, now)
            return found

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancels jobs, and kills those that run. The ends of these jobs are not reported."""
        for number in numbers:
            with self._lock:
                future = self._futures.pop(number, None)
                self._seen.pop(number, None)
            if future is not None:
                future.cancel()

    def wait(self, seconds: float) -> Optional[Ended]:
        """A job that has ended, each once; ``None`` if there is none in that time."""
        try:
            return self._ended.get(timeout=max(seconds, 0))
        except queue.Empty:
            return None

    def shutdown(self) -> None:
        """Cancels what has not ended."""
        self.cancel(self.issued())
        self._executor.shutdown(cancel_futures=True)


def _end_of(number: int, future: "Future[None]") -> Ended:
    try:
        error = future.exception()
    except CancelledError:
        return Ended(number, is_cancelled=True)
    if error is None:
        return Ended(number, exit_code=0)
    if isinstance(error, CallTimeout):
        return Ended(number, is_timeout=True, error=error)
    if isinstance(error, TaskFailed):
        return Ended(number, error.exit_code, error.signal, error=error)
    return Ended(number, error=error)
