"""Access files of instances: what opens an instance on other connections than the one on
which it was created."""

import os
from contextlib import contextmanager
from typing import Iterator, Optional, Tuple


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
