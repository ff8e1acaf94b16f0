"""The output of calls, shown where this process writes."""

import logging
import os
import sys
from typing import Any, Callable, List, Optional

LOG = logging.getLogger("falkon")

Show = Callable[[int, bytes], None]
"""Is given the number of a stream (1 or 2) and bytes."""


def write_output(stream: int, data: bytes) -> None:
    """Shows what a call wrote where this process writes. A character that cannot be
    shown there is replaced."""
    target = sys.stdout if stream == 1 else sys.stderr
    if target is None:
        return
    text = data.decode("utf-8", "replace")
    try:
        target.write(text)
    except UnicodeEncodeError:
        encoding = getattr(target, "encoding", None) or "ascii"
        target.write(text.encode(encoding, "replace").decode(encoding, "replace"))
    target.flush()


class Output:
    """Passes on what the calls of a session wrote. Whatever ``show`` raises costs
    what was to be shown, and nothing else: it is called by the thread that receives
    the results of all calls."""

    def __init__(self, show: Optional[Show], folder: str):
        self._show = show
        self._folder = folder
        """Where this session's own executor keeps what is too long to be sent."""
        self._has_failed = False

    def of_call(self, detail: List[Any]) -> None:
        """Shows what a call wrote."""
        if self._show is None:
            return
        for stream in (0, 1):
            if detail[stream][1]:
                try:
                    self._show(stream + 1, self._written(stream, detail[stream]))
                except BaseException:
                    self._failed()

    def _failed(self) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        LOG.warning(
            "what a call wrote could not be shown; the calls go on, and this is logged once",
            exc_info=True,
        )

    def _written(self, stream: int, captured: List[Any]) -> bytes:
        """Returns what a call wrote, whole if its executor is this session's own. No
        path comes from elsewhere: the folder is ours, and the number names the file."""
        head: bytes
        head, total, overflow, _ = captured
        if total <= len(head):
            return head
        if overflow is not None and self._folder:
            name = "%d.%s" % (overflow[1], "stderr" if stream else "stdout")
            whole = _own_file(os.path.join(self._folder, name), total)
            if whole is not None:
                return whole
        if overflow is None:
            why = b"the executor could not keep the rest"
        elif self._folder:
            why = b"the rest cannot be read"
        else:
            why = b"the rest stays with the executor that made the call"
        return head + b"\n[falkon: cut: %d of %d bytes: %s]\n" % (len(head), total, why)


def _own_file(path: str, length: int) -> Optional[bytes]:
    """Returns a file that was made for this session, and removes it; None unless all
    of it is there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(file, "rb") as whole:
            data = whole.read(length + 1)
        os.unlink(path)
    except OSError:
        return None
    return data if len(data) == length else None
