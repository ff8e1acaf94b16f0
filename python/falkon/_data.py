"""Objects in the caches of executors, as the commands ``falkon data …`` reach them."""

import subprocess
import tempfile
from typing import Any, List, Sequence, Tuple

from ._classes import Unpickler
from ._errors import FalkonError
from ._program import find


def asked(command: str, access: str, *words: str, keep: Sequence[int] = ()) -> Any:
    """The answer of ``falkon data`` about an object. ``keep`` are files that it finds open."""
    import json  # Scripts whose calls use no objects need not wait for it.

    argv = [find(), "data", command, "--access", access, *words]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, pass_fds=keep
    )
    if done.returncode:
        raise FalkonError(done.stderr.strip() or "falkon data %s failed" % command)
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else None


def fetched_from_any(clusters: Sequence[str], url: str) -> Any:
    """The value that an object in a cache of one of these dispatchers' executors is. It is
    dropped there: nobody else can read it."""
    errors: List[str] = []
    for access in clusters:
        try:
            value = fetched(access, (), url)
        except FalkonError as error:
            errors.append("%s: %s" % (access, error))
            continue
        try:
            asked("rm", access, "--force", url)
        except FalkonError:
            pass  # It goes with the calls' instance there.
        return value
    raise FalkonError("; ".join(errors))


def version_of(url: str) -> Any:
    """In which version an object is at its source: ``url``, ``version`` and ``size``."""
    import json

    argv = [find(), "data", "version", "--json", "--", url]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise FalkonError(done.stderr.strip() or "falkon data version failed")
    return json.loads(done.stdout)


def fetched(access: str, keep: Tuple[int, ...], url: str) -> Any:
    """The value that an object in a cache is, which the access file opens; ``keep`` are
    files that the program finds open."""
    from .worker.objects import read_object

    # A file without a name: nothing of it is left, however this process ends.
    with tempfile.TemporaryFile() as value:
        done = subprocess.run(
            [find(), "data", "get", "--access", access, url],
            stdin=subprocess.DEVNULL,
            stdout=value,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=keep,
        )
        if done.returncode:
            raise FalkonError(done.stderr.strip() or "%s cannot be fetched" % url)
        path = "/proc/self/fd/%d" % value.fileno()
        return read_object(path, Unpickler)  # type: ignore[no-untyped-call]
