"""The output of calls."""

import io
import os
import sys

_dup2 = os.dup2
"""The function as it is before it is watched."""


class Stream:
    """Standard output or standard error, in a file that is emptied after each
    call that wrote something."""

    def __init__(self, target, text, path, capture_bytes):
        self.path = path
        self.target = target
        self.text = text
        self.capture_bytes = capture_bytes
        self.kept = 0
        self.fd = -1
        self._open()

    def _open(self):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        _dup2(fd, self.target)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = fd

    def renew(self):
        """Has children that are left write to where nobody reads."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass  # The call removed it.
        self._open()

    def drop(self):
        """Drops what threads have written since the last call."""
        if os.lseek(self.fd, 0, os.SEEK_END):
            os.ftruncate(self.fd, 0)

    def take(self):
        """The output since the last call: its first bytes, its length, and the file that holds all
        of it if it is long."""
        total = os.lseek(self.fd, 0, os.SEEK_END)
        if not total:
            return [b"", 0, b""]
        head = os.pread(self.fd, min(total, self.capture_bytes), 0)
        if total <= self.capture_bytes:
            os.ftruncate(self.fd, 0)
            return [head, total, b""]
        self.kept += 1
        kept = "%s.%d" % (self.path, self.kept)
        os.rename(self.path, kept)
        self._open()
        return [head, total, os.fsencode(kept)]


def flush(streams):
    """Brings what Python has not written yet to the files."""
    for stream in streams:
        try:
            stream.text.flush()
        except (ValueError, OSError):
            # The call closed it, or the disk is full: the next one starts anew.
            _dup2(stream.fd, stream.target)
            raw = io.FileIO(stream.target, "w", closefd=False)
            stream.text = io.TextIOWrapper(io.BufferedWriter(raw), errors="backslashreplace")
            setattr(sys, "stdout" if stream.target == 1 else "stderr", stream.text)


def line_buffer_c():
    """Has the C library write standard output line by line, as on a terminal,
    so that what C code prints is there when its call ends."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")
        libc.setvbuf(stdout, None, 1, 0)
    except Exception:
        pass  # Without it such output comes late, and nothing else is worse.
