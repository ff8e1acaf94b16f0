"""The program of an executor, started by ``import falkon``.

A script that has made an ``Executor()`` is remembered, with what its calls were expected
to import (docs/python-start.md). When it runs again, the program, its workers and their
imports start while the script still imports for itself. ``Executor()`` takes them over if
nothing that they have inherited has changed meanwhile; otherwise it starts others.

This module is imported by each script, and imports others when they are needed.
"""

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Found = Tuple[str, List[str], str, Dict[str, str]]

    from ._program import Program

VERSION = "falkon 1"
"""The first line of what is remembered of a script."""
SCRIPTS_MAX = 256
"""Scripts that are remembered."""
BYTES_MAX = 32 << 10
"""The longest that is remembered of one."""
SETTINGS = ("BLIS_", "KMP_", "MKL_", "NUMEXPR_", "OMP_", "OPENBLAS_")
"""Variables that scripts and packages set, scikit-learn for one, to say how libraries use
threads: they are remembered as well."""

_environment = dict(os.environ)


class Early:
    """A program that waits for its executor."""

    def __init__(
        self, path: str, options: "List[str]", imports: str, variables: "Dict[str, str]"
    ) -> None:
        from ._program import Program, folder_options, new_folder

        self.path = path
        self.options = options
        self.imports = imports
        environment = dict(os.environ, **variables)
        self.inherited = inherited(environment)
        self.folder = new_folder()
        asked = [*options, "--foresee", imports, *folder_options(self.folder)]
        try:
            self.program: "Program" = Program(asked, environment=environment)
        except BaseException:
            os.rmdir(self.folder)
            raise

    def end(self) -> None:
        """Ends it: nobody has taken it over."""
        self.program.socket.close()
        self.program.wait()


_early: "Optional[Early]" = None


def begin() -> None:
    """Starts the program if this script is one that makes an executor."""
    global _early
    try:
        found = _remembered()
        if found is None:
            return
        _early = Early(*found)
    except Exception:
        return  # Executor() meets the same error again, and raises it.
    import atexit

    os.register_at_fork(after_in_child=_forked)
    atexit.register(forget)


def take(options: "List[str]", imports: str) -> "Optional[Early]":
    """The program that was started, if it is what would be started now."""
    global _early
    early, _early = _early, None
    if early is None:
        return None
    known = early.imports.split(",")
    if (
        early.options == options
        and all(name in known for name in imports.split(","))
        and early.inherited == inherited(dict(os.environ))
        and early.program.process.poll() is None
    ):
        return early
    import threading

    threading.Thread(target=early.end, name="falkon").start()
    return None


def remember(options: "List[str]", imports: str) -> None:
    """Notes what this script starts."""
    try:
        path, script = _place()
        if path is None:
            return
        # Not those whose values may be nobody's concern.
        changed = [
            "%s=%s" % one
            for one in sorted(os.environ.items())
            if one[0].startswith(SETTINGS) and _environment.get(one[0]) != one[1]
        ]
        variables = "\0".join(changed)
        text = "\n".join((VERSION, script, sys.executable, imports, variables, *options)) + "\n"
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > BYTES_MAX or _read(path) == data:
            return
        folder = os.path.dirname(path)
        os.makedirs(folder, 0o700, exist_ok=True)
        names = [name for name in os.listdir(folder) if _is_ours(name)]
        if len(names) >= SCRIPTS_MAX:
            for name in names:
                os.unlink(os.path.join(folder, name))
        part = "%s.%d" % (path, os.getpid())
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        os.rename(part, path)
    except (OSError, ValueError):
        pass  # The next run of the script starts the program later, and is right all the same.


def forget() -> None:
    """Ends the program: this script makes no such executor, or not any more."""
    global _early
    early, _early = _early, None
    if early is None:
        return
    try:
        os.unlink(early.path)
    except OSError:
        pass
    early.end()


def _forked() -> None:
    """The program is the parent's."""
    global _early
    early, _early = _early, None
    if early is not None:
        early.program.socket.close()


def _place() -> "Tuple[Optional[str], str]":
    """Where it is noted what this script starts, and which script it is; ``None`` for
    what is no script of one's own."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if (
        type(script) is not str
        or not script.endswith(".py")
        or "/site-packages/" in script
        or "/dist-packages/" in script
        or script.startswith(os.path.dirname(os.__file__) + os.sep)
        or "FALKON_TASK_KEY" in os.environ  # A call imports this package.
        or os.environ.get("FALKON_START_AHEAD") == "0"
    ):
        return None, ""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return None, ""
    import zlib

    script = os.path.realpath(script)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):
        return None, ""
    both = ("%s\n%s" % (script, sys.executable)).encode("utf-8", "surrogateescape")
    name = "%08x%08x" % (zlib.crc32(both), zlib.adler32(both))
    return os.path.join(cache, "falkon", "starts", name), script


def _is_ours(name: str) -> bool:
    """Whether a file of the folder is one that :func:`remember` made."""
    return len(name) >= 16 and not name[:16].strip("0123456789abcdef")


def _read(path: str) -> bytes:
    """The file, if nobody else can have written it."""
    import stat

    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                return b""
            return file.read(BYTES_MAX + 1)
    except OSError:
        return b""


def _remembered() -> "Optional[Found]":
    """Where it is remembered what this script starts: options, imports, variables."""
    path, script = _place()
    if path is None:
        return None
    data = _read(path)
    if not data.endswith(b"\n") or len(data) > BYTES_MAX:
        return None
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    version, of, python, imports, variables, *options = lines[:-1]
    if (version, of, python) != (VERSION, script, sys.executable) or options[:1] != ["--here"]:
        return None
    changed = [one.partition("=") for one in variables.split("\0") if one.startswith(SETTINGS)]
    return path, options, imports, {name: value for name, _, value in changed}


def inherited(environment: "Dict[str, str]") -> "Tuple[Any, ...]":
    """The state of this process that the program inherits, and workers of the program."""
    import resource

    from ._program import module_path

    with open("/proc/self/status") as status:
        umask = [line for line in status if line.startswith("Umask")]
    limits = [
        resource.getrlimit(getattr(resource, name))
        for name in dir(resource)
        if name.startswith("RLIMIT_")
    ]
    return (
        environment, os.path.realpath("/proc/self/cwd"), module_path(), umask, limits,
        os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0),
        os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups(),
    )  # fmt: skip
