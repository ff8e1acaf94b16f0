"""Processor time of this process and of all that it has started, whoever of those is
still there."""

import ctypes
import os
import pathlib
import resource

PR_SET_CHILD_SUBREAPER = 36


def adopt():
    """Has what those that were started here leave behind belong to this process, so
    that it counts."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _threads(pid):
    return pathlib.Path("/proc", str(pid), "task").iterdir()


def _started_by(pid):
    for thread in _threads(pid):
        for child in (thread / "children").read_text().split():
            yield int(child)


def _seconds_of(pid):
    """Of a process and of all that it has started; 0 if it is gone."""
    try:
        own = sum(int((one / "schedstat").read_text().split()[0]) for one in _threads(pid)) / 1e9
        return own + sum(map(_seconds_of, list(_started_by(pid))))
    except (OSError, ValueError, IndexError):
        return 0.0


def seconds():
    """Processor time so far. Of what has ended, that counts for which this process has
    waited."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return _seconds_of(os.getpid()) + ended.ru_utime + ended.ru_stime
