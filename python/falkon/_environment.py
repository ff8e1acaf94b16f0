"""Software that calls find: an archive or a directory with an interpreter, unpacked once on
each executor."""

import os
from typing import Any, List, Sequence, Tuple, Union

from ._files import File, file_of

Place = Union[str, "os.PathLike[str]"]

INTERPRETER = "bin/python"
"""Where the interpreter is in an archive, as conda-pack and venv-pack make them."""
UNPACKS = 8
"""Which field of a task's class counts the archives that it finds unpacked."""
INTERPRETER_VARIABLE = "FALKON_WORKER_INTERPRETER"
"""The variable that names it to an executor (docs/workers.md)."""


class Environment:
    """An archive that calls find unpacked, the first of what they read, and whose
    interpreter makes them."""

    def __init__(self, archive: Place):
        if not isinstance(archive, (str, os.PathLike)):
            raise TypeError(
                "environment=%r is not accepted: it is the path or the URL of an archive, as "
                "conda-pack and venv-pack make them, or the path of a directory" % (archive,)
            )
        is_folder = not isinstance(archive, File) and os.path.isdir(archive)
        self.archive = File.of_folder(os.fspath(archive)) if is_folder else file_of(archive)

    @property
    def variable(self) -> Tuple[str, str]:
        """The variable that names the interpreter."""
        return INTERPRETER_VARIABLE, INTERPRETER

    def task_class(self, of_class: List[Any]) -> List[Any]:
        """A task's class, as the protocol has it, with one archive to unpack."""
        return [*of_class[:UNPACKS], 1, *of_class[UNPACKS + 1 :]]

    def files(
        self, files: Tuple[Sequence[Any], Sequence[Any]]
    ) -> Tuple[Sequence[Any], Sequence[Any]]:
        """What a call reads, the archive first, and writes."""
        return (self.archive, *files[0]), files[1]
