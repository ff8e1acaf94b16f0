"""How far it is: a bar in a terminal, a widget in a notebook, else nothing."""

import sys
import time
from concurrent.futures import Future, as_completed
from typing import Any, Dict, Iterable, Iterator, Optional, TextIO, TypeVar

T = TypeVar("T")

BAR_CHARS = 30
SHOWN_SECONDS = 0.1
"""The least time between two states of a bar."""


def _notebook() -> Any:
    """The function that shows things in a notebook, if this runs in one."""
    shell = sys.modules.get("IPython")
    if shell is None:
        return None
    running = shell.get_ipython()
    if running is None or type(running).__name__ != "ZMQInteractiveShell":
        return None
    return shell.display


class Progress:
    """Shows how much of something is done, within a ``with`` block."""

    def __init__(self, wanted: Optional[bool] = None, total: int = 0, unit: str = "calls"):
        self._display = _notebook() if wanted is not False else None
        self._stream: Optional[TextIO] = sys.stderr
        terminal = self._stream is not None and self._stream.isatty()
        self.wanted = bool(wanted or (wanted is None and (terminal or self._display)))
        self._total = total
        self._unit = unit
        self._handle: Any = None
        self._begin = time.monotonic()
        self._shown = 0.0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *raised: Any) -> None:
        if self.wanted and self._handle is None and self._shown:
            self._write("\n")

    def _write(self, text: str) -> None:
        """Writes to the terminal; one that is gone is not written to again."""
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def show_status(self, status: Dict[str, Any]) -> None:
        """Shows the status of an instance."""
        self._total = status["tasks"]
        bad = status["failed"] + status["cancelled"]
        self.show(status["done"] + bad, status["failed"], last=status["state"] == "complete")

    def show(self, done: int, failed: int = 0, last: bool = False) -> None:
        now = time.monotonic()
        if not self.wanted or (now - self._shown < SHOWN_SECONDS and not last):
            return
        self._shown = now
        total = max(self._total, done, 1)
        rate = done / max(now - self._begin, 1e-9)
        text = "%d/%d %s, %.0f/s" % (done, total, self._unit, rate)
        if failed:
            text += ", %d failed" % failed
        if self._display is not None:
            html = self._display.HTML(
                "<progress value=%d max=%d></progress> %s" % (done, total, text)
            )
            if self._handle is None:
                self._handle = self._display.display(html, display_id=True)
            else:
                self._handle.update(html)
        else:
            filled = BAR_CHARS * done // total
            bar = "#" * filled + "-" * (BAR_CHARS - filled)
            self._write("\r[%s] %s\x1b[K" % (bar, text))


def progress(
    futures: "Iterable[Future[T]]", wanted: Optional[bool] = None
) -> "Iterator[Future[T]]":
    """Yields futures as they end, and shows how many have: a bar in a terminal,
    a widget in a notebook. ``wanted`` forces it on or off.

    >>> with falkon.Executor() as executor:
    ...     futures = [executor.submit(abs, -n) for n in range(3)]
    ...     sorted(future.result() for future in falkon.progress(futures))
    [0, 1, 2]
    """
    waiting = list(futures)
    failed = 0
    with Progress(wanted, len(waiting)) as shown:
        for done, future in enumerate(as_completed(waiting), 1):
            if future.cancelled() or future.exception() is not None:
                failed += 1
            shown.show(done, failed, last=done == len(waiting))
            yield future
