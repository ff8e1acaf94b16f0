"""Calls for each of many things: files, numbers, rows of a table.

After Swift's ``foreach`` and its mappers, which give data its names.
"""

import os
import re
import string
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Set,
    TypeVar,
    Union,
    overload,
)

from ._apps import App, python_app
from ._errors import FalkonError
from ._files import File, divided
from ._futures import Future
from ._program import find

T = TypeVar("T")
Name = Union[str, "os.PathLike[str]"]

_OF_PATHS = frozenset(("name", "stem", "suffix", "parent"))
_TABS = (".tsv", ".tab")
_JSON_LINES = (".jsonl", ".ndjson")


class Row(Dict[str, Any]):
    """A row of a table: values by their columns. :func:`foreach` passes them as
    named arguments."""


def glob(*patterns: Name) -> List[Path]:
    """The files that match any of the patterns (``*``, ``?``, ``[a-z]``, and ``**``
    for any folders), each once, sorted by name."""
    import glob

    found: Set[str] = set()
    for pattern in patterns:
        found.update(glob.iglob(os.fspath(pattern), recursive=True))
    return [Path(name) for name in sorted(found)]


def members(*patterns: Name) -> List[File]:
    """The members of archives that match any of the patterns, ``ARCHIVE.zip!PATTERN``, each
    once, in the archives' order. ``*`` stands for anything but a slash, ``**`` for anything.

    Raises :class:`FalkonError` if an archive cannot be read, or has no such member.
    """
    import subprocess

    found: Dict[str, None] = {}
    for pattern in map(os.fspath, patterns):
        parts = divided(pattern)
        if parts is None:
            raise ValueError("no members of an archive: %r (write ARCHIVE.zip!PATTERN)" % pattern)
        command = [find(), "archive", "ls", "--null", pattern]
        listed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if listed.returncode != 0:
            raise FalkonError(listed.stderr.decode(errors="replace").strip())
        names = listed.stdout.decode().split("\0")
        found.update((parts[0] + "!" + name, None) for name in names if name[-1:] not in ("", "/"))
    return [File(one) for one in found]


def rows(
    path: Name,
    *,
    types: Optional[Mapping[str, Callable[[Any], Any]]] = None,
    delimiter: Optional[str] = None,
) -> Iterator[Row]:
    """The rows of a table, one after another as they are read.

    A text whose first line names the columns, with commas between values, tabs if
    the file's name ends with ``.tsv``, or ``delimiter``; or JSON Lines (``.jsonl``),
    an object a line. Values of a text are texts; ``types`` says what is made of the
    values of a column: ``{"mass": float}``.
    """
    path = os.fspath(path)
    made = rows_of_json(path) if path.endswith(_JSON_LINES) else rows_of_text(path, delimiter)
    if not types:
        yield from made
        return
    for number, row in enumerate(made, 1):
        for column, kind in types.items():
            try:
                row[column] = kind(row[column])
            except KeyError:
                raise ValueError("%s: row %d has no column %r" % (path, number, column)) from None
            except ValueError as error:
                raise ValueError("%s: row %d: %s: %s" % (path, number, column, error)) from None
        yield row


def rows_of_json(path: str) -> Iterator[Row]:
    """The rows of JSON Lines."""
    import json

    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError("%s: line %d is no JSON: %s" % (path, number, error)) from None
            if not isinstance(row, dict):
                raise ValueError("%s: line %d is no object: a row has columns" % (path, number))
            yield Row(row)


def rows_of_text(path: str, delimiter: Optional[str]) -> Iterator[Row]:
    """The rows of a text whose first line names the columns."""
    import csv

    if delimiter is None:
        delimiter = "\t" if path.endswith(_TABS) else ","
    # Some programs put a mark in front that is no part of the first name.
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        columns = next(reader, [])
        if len(set(columns)) < len(columns):
            raise ValueError("%s: two columns have one name: %s" % (path, ", ".join(columns)))
        for row in reader:
            if len(row) != len(columns):
                if not row:
                    continue
                raise ValueError(
                    "%s: line %d has %d values, but there are %d columns"
                    % (path, reader.line_num, len(row), len(columns))
                )
            yield Row(zip(columns, row))


class to:  # noqa: N801
    """A path with an item's name in it, as an argument of :func:`foreach`.

    ``{}`` stands for the item, ``{index}`` for its number from 0; of an item that is
    a path, ``{name}``, ``{stem}`` (the name without its last suffix), ``{suffix}``
    and ``{parent}`` stand for its parts, and of a row, ``{COLUMN}`` for a value.
    What Python's formats can say, as ``{index:06d}``, they can say here.

    >>> falkon.to("out/{stem}.png").path(Path("in/a.fits"), 0)
    PosixPath('out/a.png')
    """

    __slots__ = ("template", "_fields", "_whole")

    def __init__(self, template: Name):
        self.template = os.fspath(template)
        fields = (field for _, field, _, _ in string.Formatter().parse(self.template))
        names = {re.split(r"[.\[]", field)[0] for field in fields if field is not None}
        self._fields = names - {"", "0"}
        self._whole = self._fields != names

    def __repr__(self) -> str:
        return "falkon.to(%r)" % self.template

    def path(self, item: Any, index: int) -> Path:
        """The path for an item."""
        return Path(self._filled(item, index))

    def _filled(self, item: Any, index: int) -> str:
        fields: Dict[str, Any] = {"index": index}
        if isinstance(item, Row):
            fields.update(item)
        elif self._fields & _OF_PATHS and isinstance(item, (str, os.PathLike)):
            path = item.url if isinstance(item, File) else os.fspath(item)
            parent, name = os.path.split(path)
            name = (divided(name) or ("", name))[1]
            stem, suffix = os.path.splitext(name)
            fields.update(name=name, stem=stem, suffix=suffix, parent=parent or ".")
        for field in self._fields:
            if field not in fields:
                raise ValueError(self._complaint(field, item))
        if self._whole and isinstance(item, (Future, Row)):
            raise ValueError(self._complaint("", item))
        return self.template.format(item, **fields)

    def _complaint(self, field: str, item: Any) -> str:
        kind = "the item %r" % (item,)
        if isinstance(item, Row):
            kind = "a row of the columns %s" % ", ".join(item)
        elif isinstance(item, Future):
            kind = "a future"
        return (
            "{%s} in %r stands for nothing: a path has {}, {name}, {stem}, {suffix} and {parent}, a "
            "row its columns, another item but a future {}, and all have {index}; this is %s"
            % (field, self.template, kind)
        )


@overload
def foreach(
    app: App[..., T], items: Iterable[Any], /, *args: Any, **kwargs: Any
) -> List[Future[T]]: ...
@overload
def foreach(
    app: Callable[..., T], items: Iterable[Any], /, *args: Any, **kwargs: Any
) -> List[Future[T]]: ...
def foreach(
    app: Callable[..., Any], items: Iterable[Any], /, *args: Any, **kwargs: Any
) -> List[Future[Any]]:
    """Calls an app, or a function, for each item: ``app(item, *args, **kwargs)``.
    Returns the futures, in the items' order.

    Items may be anything: files (:func:`glob`), members of archives (:func:`members`), rows of a table (:func:`rows`, whose
    values are named arguments), a :class:`range`, futures of an earlier one. An
    argument that is a :class:`to` is a path made of the item's name; so are those in
    lists. Folders that such paths are in are made.

    >>> falkon.foreach(convert, falkon.glob("in/*.fits"), falkon.to("out/{stem}.png"))
    """
    call: Callable[..., Any] = app
    if not isinstance(app, App) and not isinstance(getattr(app, "func", None), App):
        call = python_app(app)
    fixed = not any(map(_is_filled, (*args, *kwargs.values())))
    folders: Set[str] = set()
    futures: List[Future[Any]] = []
    here, named = args, kwargs
    for index, item in enumerate(items):
        if not fixed:
            here = tuple(_fill(value, item, index, folders) for value in args)
            named = {name: _fill(value, item, index, folders) for name, value in kwargs.items()}
        if type(item) is Row:
            futures.append(call(*here, **item, **named))
        else:
            futures.append(call(item, *here, **named))
    return futures


def _is_filled(value: Any) -> bool:
    return isinstance(value, to) or (
        isinstance(value, (list, tuple)) and any(isinstance(one, to) for one in value)
    )


def _fill(value: Any, item: Any, index: int, folders: Set[str]) -> Any:
    """An argument for an item."""
    if isinstance(value, to):
        path = value._filled(item, index)
        folder = os.path.dirname(path)
        if folder not in folders:
            if folder:
                os.makedirs(folder, exist_ok=True)
            folders.add(folder)
        return Path(path)
    if isinstance(value, (list, tuple)):
        filled = [_fill(one, item, index, folders) for one in value]
        return tuple(filled) if isinstance(value, tuple) else filled
    return value
