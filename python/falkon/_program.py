"""The program ``falkon``: where it is, and how it is started."""

import os
import socket
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from ._errors import FalkonError


PROTOCOL_VERSION = 9
"""The protocol of this package (docs/protocol.md)."""


def find() -> str:
    """Where the program is: what ``FALKON_BINARY`` names, else beside this
    interpreter, where ``pip`` puts it, else in the search path."""
    named = os.environ.get("FALKON_BINARY")
    if named:
        return named
    for scheme in (sysconfig.get_default_scheme(), "posix_user"):
        path = os.path.join(sysconfig.get_path("scripts", scheme), "falkon")
        if os.access(path, os.X_OK):
            return path
    import shutil

    found = shutil.which("falkon")
    if found is None:
        raise FalkonError(
            "the program falkon is not there: install it with `pip install .`, or name it with "
            "FALKON_BINARY"
        )
    return found


def module_path() -> str:
    """``PYTHONPATH`` for workers: they find modules where this process does."""
    paths = sysconfig.get_paths()
    own = {os.path.realpath(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found: List[str] = []
    for entry in sys.path:
        try:
            path = os.path.realpath(entry or os.getcwd())
        except FileNotFoundError:
            # The working directory is gone: it has no modules.
            continue
        standard = path in own or os.path.dirname(path) in own or path.endswith(".zip")
        if not standard and path not in found:
            found.append(path)
    return os.pathsep.join(found)


def new_folder() -> str:
    """A new folder for what is too large to travel with calls."""
    place = os.environ.get("TMPDIR") or "/tmp"
    folder = os.path.abspath("%s/falkon-objects-%s" % (place, os.urandom(8).hex()))
    os.mkdir(folder, 0o700)
    return folder


def overflow_of(folder: str) -> str:
    """The folder beside it for output of calls that is too long to be sent."""
    return folder + "-overflow"


def folder_options(folder: str) -> List[str]:
    """Tells the program of these folders."""
    return ["--objects", folder, "--overflow", overflow_of(folder)]


def socket_pair() -> Tuple[socket.socket, socket.socket]:
    """Both ends of a connection to the program."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ends


def new_errors() -> Any:
    """The file of the program's standard error: the reason of its end."""
    return open(os.memfd_create("errors"), "r+b", buffering=0)


def environment_of(variables: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The program's environment."""
    return dict(variables or os.environ, PYTHONPATH=module_path())


def command_of(options: List[str]) -> List[str]:
    """Starts the program."""
    return [find(), "pipe", "--protocol", str(PROTOCOL_VERSION), *options]


class Process(Protocol):
    """The program's process; a :class:`subprocess.Popen`, as far as it is used."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> Optional[int]: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...


class Program:
    """A running ``falkon pipe`` and this end of the connection to it. It ends
    when that is closed, also because this process was killed."""

    def __init__(
        self,
        options: List[str],
        keep: Sequence[int] = (),
        environment: Optional[Mapping[str, str]] = None,
    ):
        self.socket, theirs = socket_pair()
        self._errors = new_errors()
        command = command_of(options)
        try:
            # A session of its own: what the terminal tells this process
            # (Ctrl-C) is for this process alone.
            self.process: Process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment_of(environment),
                pass_fds=keep,
                start_new_session=True,
            )
        except OSError as error:
            self.socket.close()
            raise FalkonError("cannot start %s: %s" % (command[0], error)) from None
        finally:
            theirs.close()

    def __del__(self) -> None:
        self._errors.close()

    def wait(self) -> None:
        """Waits until it has ended and nothing of it is left."""
        self.process.wait()

    def reason_of_end(self) -> str:
        """The reason of its end: its last message, or its exit code."""
        code = self.process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()
        return text or "falkon ended with exit code %d" % code
