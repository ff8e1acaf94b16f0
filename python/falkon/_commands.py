"""Commands as tasks: what a command is to a dispatcher (docs/protocol.md)."""

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import msgspec

from ._executor import Executor
from ._futures import Future
from ._kinds import Kind
from ._options import U64_MAX

Text = Union[str, bytes, "os.PathLike[str]"]

_PROCESS = 0
"""The kind of task that a command is."""
_EACH = 1
"""The template of submissions whose rows are whole commands."""
_MEMORY_LIMIT = 10
"""Where a task's class has its limit of memory (``_task_options.py``)."""
_encode = msgspec.msgpack.Encoder().encode


class CommandKind(Kind):
    """The kind of commands with the same options."""

    __slots__ = ()

    def __init__(self, executor: Executor, **options: Any):
        # A class of calls, but for the kind of task, and without a limit of memory: what other
        # workflow systems call a job's memory is what it reserves.
        of_calls = executor.options(**options)._class
        of_class = [[_PROCESS], *of_calls[1:]]
        of_class[_MEMORY_LIMIT] = U64_MAX
        super().__init__("a command", b"", of_class)
        self.template = _encode([_EACH])


def command_row(
    argv: Sequence[Text],
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[Text] = None,
    stdin: Optional[Text] = None,
    inputs: Sequence[Text] = (),
    outputs: Sequence[Text] = (),
) -> bytes:
    """A command as a submission has it."""
    if isinstance(argv, (str, bytes)) or not argv:
        raise TypeError("a command is a list of a program and its arguments: %r" % (argv,))
    variables: Dict[str, str] = dict(env or {})
    row: List[Any] = [
        [os.fsencode(word) for word in argv],
        [[os.fsencode(name), os.fsencode(value)] for name, value in variables.items()],
        None if cwd is None else os.fsencode(cwd),
        None if stdin is None else os.fsencode(stdin),
        [os.fsencode(name) for name in inputs],
        [os.fsencode(name) for name in outputs],
        None,
        None,
    ]
    return _encode(row)


def submit_row(executor: Executor, kind: CommandKind, row: bytes) -> "Future[None]":
    """Runs a command where an executor's calls are made; the future is done when
    it has ended well, and fails with what went wrong."""
    future: Future[None] = Future()
    executor._shared.session().submit(kind, row, future)
    return future
