"""Access files: those that users name, and those of instances, which open an instance on
other connections than the one on which it was created."""

import os
from contextlib import contextmanager
from typing import Iterator, Optional, Sequence, Tuple, Union

Path = Union[str, "os.PathLike[str]"]
Access = Union[None, Path, Sequence[Path]]
"""No dispatcher, that of an access file, or those of several."""


def places_of(access: Access) -> Tuple[Optional[str], Tuple[str, ...]]:
    """The access file of one dispatcher, or those of several."""
    if access is None:
        return None, ()
    if isinstance(access, (str, os.PathLike)):
        return os.fspath(access), ()
    if not isinstance(access, (list, tuple)):
        raise TypeError("access is an access file, or a list of several, not %r" % (access,))
    named = tuple(map(os.fspath, access))
    if not named:
        raise ValueError("the list of access files is empty: leave it out for calls on this machine")
    return (named[0], ()) if len(named) == 1 else (None, named)


def key_of(access: Access) -> Union[None, Path, Tuple[Path, ...]]:
    """What tells access files from others, for keys of mappings."""
    return tuple(access) if isinstance(access, list) else access  # type: ignore[return-value]


def check_one(access: Access) -> None:
    """Refuses several access files, for what speaks to one dispatcher."""
    if isinstance(access, (list, tuple)):
        raise TypeError(
            "a client is one dispatcher's: falkon.Executor([...]) makes calls, and `falkon run "
            "--access A --access B` runs tasks, on the executors of several"
        )


def _of_instance(path: str, instance: int, secret: bytes) -> Optional[bytes]:
    """The content of an access file that opens an instance; ``None`` where the file at
    ``path`` opens it."""
    import json  # Most scripts need not wait for it.

    try:
        with open(path) as file:
            access = json.load(file)
        if "owner" in access["secrets"] or not secret:
            return None
        access["secrets"] = {"instance-%d" % instance: secret.hex()}
        return json.dumps(access).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return None  # The program reports what is wrong with the file.


@contextmanager
def access_to(
    path: str, instance: Optional[int], secret: bytes
) -> Iterator[Tuple[str, Tuple[int, ...]]]:
    """The access file with which the program reaches an instance, and the descriptors
    that the program finds open for that."""
    own = None if instance is None else _of_instance(path, instance, secret)
    if own is None:
        yield path, ()
        return
    # A file without a name: no other process can open it.
    file = os.memfd_create("access")
    try:
        os.fchmod(file, 0o600)
        os.write(file, own)
        yield "/proc/self/fd/%d" % file, (file,)
    finally:
        os.close(file)
