"""Requests of clients to the program, as command lines, and the answers."""

import json
import os
import tempfile
from dataclasses import dataclass, field
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from . import _options
from ._errors import FalkonError
from ._notebook import Report

Path = Union[str, "os.PathLike[str]"]
Text = Union[str, bytes, "os.PathLike[str]"]
T = TypeVar("T")
U = TypeVar("U")

TASKS_FAILED = 1
"""Exit status: some tasks failed or were cancelled."""


class ClientError(FalkonError):
    """The program refused what a :class:`falkon.Client` asked for, or could not
    do it; the text is its message, ``status`` its exit status (2: the request is
    wrong; 3: it failed)."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.args[0], self.status))


@dataclass(frozen=True)
class Result:
    """How a task ended."""

    id: str
    """The task's name in a task file, else its number."""
    index: int
    """The task's number within the instance, from 0."""
    status: str
    """``done``, ``failed`` or ``cancelled``."""
    exit_code: Optional[int]
    signal: Optional[int]
    stdout: str
    """The text that the task wrote, as far as it was kept."""
    stderr: str
    executor: Optional[str]
    attempts: int
    times: Dict[str, Optional[float]]
    """Seconds since 1970: ``queued``, ``dispatched``, ``started``, ``ended``,
    ``delivered``."""
    error: Optional[str]
    """Why it failed, where its exit code does not say it."""
    value: Any = None
    """The value that a function returned."""
    cause: Optional[str] = None
    """Why it failed, for programs: ``no_program``, ``worker_died`` and so on, if
    there is a name for it."""
    usage: Optional[Dict[str, Any]] = None
    """What its process used: ``wall_seconds``, ``user_seconds``, ``system_seconds``,
    ``rss_max_bytes``, ``read_bytes`` and ``written_bytes``, and ``disk_max_bytes`` of tasks
    that claim disk space. Of tasks on several nodes these are the sums (the memory is the most of
    one node), and ``node_count``, ``nodes`` (with the ``ranks`` of MPI on each) and ``missing`` say more.
    None for calls and tasks that did not start."""
    outputs: List[str] = field(default_factory=list)
    """Where those of its outputs are that are members of archives, such as
    ``/shared/scores.part2.zip!7/energy.dat``. All of them are safe."""
    more: Dict[str, Any] = field(default_factory=dict)
    """All other fields of the result."""

    @property
    def ok(self) -> bool:
        """Whether it is done."""
        return self.status == "done"


_RESULT_FIELDS = [name for name in Result.__dataclass_fields__ if name != "more"]


def result_of(line: Union[str, bytes]) -> Result:
    fields = json.loads(line)
    known = {name: fields.pop(name) for name in _RESULT_FIELDS if name in fields}
    return Result(more=fields, **known)


class Request(NamedTuple, Generic[T]):
    """A command line of the program, and the meaning of its output."""

    words: List[str]
    parse: Callable[[str], T]
    given: Optional[bytes] = None
    """The program's standard input."""
    fine: Tuple[int, ...] = (0,)
    """Exit statuses that are no error."""
    folder: "Optional[tempfile.TemporaryDirectory[str]]" = None
    """A folder that the program writes to, which goes with the request."""

    def then(self, change: Callable[[T], U]) -> "Request[U]":
        """The same request, whose answer is passed through a function."""
        parse = self.parse
        return self._replace(parse=lambda output: change(parse(output)))  # type: ignore[return-value, arg-type]


def _nothing(_: str) -> None:
    return None


def _object(output: str) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(output)
    return found


def _lines(output: str) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line]


def _number(output: str) -> int:
    return int(output.split()[0])


def words_of(options: Mapping[str, Any]) -> List[str]:
    """Options as words: ``a_b=1`` is ``--a-b=1``, and ``or_`` is ``--or``, ``True`` an option
    alone, a mapping ``--a=NAME=VALUE`` for each of its items, a list one for each."""
    words: List[str] = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            words += ["%s=%s=%s" % (option, key, one) for key, one in value.items()]
        elif isinstance(value, (list, tuple, set)):
            words += ["%s=%s" % (option, os.fsdecode(_text(one))) for one in value]
        else:
            words.append("%s=%s" % (option, os.fsdecode(_text(value))))
    return words


def _text(value: Any) -> Text:
    return value if isinstance(value, (str, bytes, os.PathLike)) else str(value)


def _range(values: Any) -> str:
    """A range as the program writes it: both ends included."""
    if not isinstance(values, range):
        return str(values)
    if not values:
        raise ValueError("the range is empty: %r" % (values,))
    return "%d-%d:%d" % (values[0], values[-1], values.step)


def submit(
    command: Sequence[Text],
    each: Union[None, Path, Sequence[Path]],
    lines: Optional[Iterable[str]],
    range: Union[None, range, str, Sequence[Any]],
    options: Mapping[str, Any],
) -> Request[int]:
    if isinstance(command, (str, bytes)):
        raise TypeError("a command is a list of a program and its arguments: %r" % (command,))
    words = ["submit"]
    if each is not None:
        paths = [each] if isinstance(each, (str, os.PathLike)) else each
        words += ["--each", *(os.fspath(path) for path in paths)]
    given = None
    if lines is not None:
        words += ["--each-line=-"]
        if isinstance(lines, (str, bytes)):
            raise TypeError("lines=%r: lines is a list, or a file that is open" % (lines,))
        texts = (_options.line(place, one) for place, one in enumerate(lines))
        given = os.fsencode("".join(text + "\n" for text in texts))
    if range is not None:
        ranges = range if isinstance(range, (list, tuple)) else [range]
        words += ["--range=" + _range(one) for one in ranges]
    words += words_of(_options.of_command(options))
    if command:
        words += ["--", *map(os.fsdecode, command)]
    return Request(words, _number, given)


def submit_tasks(tasks: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> Request[int]:
    words = words_of(_options.of_command(options))
    checked = (_options.of_task(place, task) for place, task in enumerate(tasks))
    given = "".join(json.dumps(task, default=_as_json) + "\n" for task in checked)
    return Request(["submit", "--tasks=-", *words], _number, given.encode())


def _as_json(value: Any) -> Any:
    """The JSON form of a value that JSON does not know."""
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()  # A number of NumPy's.
    raise TypeError(
        "%r, of type %s, cannot be part of a task: JSON has no form for it"
        % (value, type(value).__name__)
    )


def submit_file(kind: str, path: Path, options: Mapping[str, Any]) -> Request[int]:
    words = words_of(_options.of_command(options))
    return Request(["submit", "--%s=%s" % (kind, os.fspath(path)), *words], _number)


def everywhere(command: Sequence[Text], options: Mapping[str, Any]) -> Request[int]:
    made = submit(command, None, None, None, options)
    return Request(["everywhere", "--no-wait", *made.words[1:]], _number)


def status() -> Request[Dict[str, Any]]:
    return Request(["status", "--json"], _object)


def instance_status(instance: int) -> Request[Dict[str, Any]]:
    return Request(["status", "--json", str(instance)], lambda output: _only(output, instance))


def _only(output: str, instance: int) -> Dict[str, Any]:
    found = _object(output)
    for one in found.get("instances", [found]):
        if one.get("id") == instance:
            status: Dict[str, Any] = one
            return status
    raise ClientError("there is no instance %d" % instance, 3)


def tasks(instance: int, first: int, count: int) -> Request[List[Dict[str, Any]]]:
    words = ["tasks", "--json", "--from=%d" % first, "--count=%d" % count, str(instance)]
    return Request(words, _lines)


def end(instance: int) -> Request[None]:
    """Waits until all tasks of an instance have ended."""
    return Request(["wait", "--quiet", str(instance)], _nothing, fine=(0, TASKS_FAILED))


def results(instance: int, first: int, wait: bool) -> Request[None]:
    """Results as they come, each a line."""
    words = ["results", "--json", "--from=%d" % first]
    words += ([] if wait else ["--no-wait"]) + [str(instance)]
    return Request(words, _nothing, fine=(0, TASKS_FAILED))


def results_now(instance: int) -> Request[List[Result]]:
    return Request(
        results(instance, 0, False).words,
        lambda output: [result_of(line) for line in output.splitlines() if line],
        fine=(0, TASKS_FAILED),
    )


def cancel(
    instance: int, tasks: Sequence[Union[int, range]], chosen: Mapping[str, Any]
) -> Request[None]:
    words = ["cancel"]
    for one in tasks:
        if not isinstance(one, range):
            words.append("--tasks=%d" % one)
        elif one.step == 1 and one:
            words.append("--tasks=%d-%d" % (one[0], one[-1]))
        else:
            words += ["--tasks=%d" % task for task in one]
    if tasks and len(words) == 1:
        raise ValueError("no task is in %r" % (tasks,))
    return Request([*words, *words_of(chosen), str(instance)], _nothing)


def retry(
    instance: int, tasks: Sequence[Union[int, range]], chosen: Mapping[str, Any]
) -> Request[int]:
    made = cancel(instance, tasks, chosen)
    return Request(["retry", *made.words[1:]], _number)


def tail(
    instance: int, task: Union[int, str], stderr: bool, last_bytes: Optional[int]
) -> Request[str]:
    words = ["tail", *words_of({"stderr": stderr, "bytes": last_bytes})]
    return Request([*words, "%d/%s" % (instance, task)], str)


def explain(instance: int, task: Union[None, int, str]) -> Request[List[Dict[str, Any]]]:
    what = str(instance) if task is None else "%d/%s" % (instance, task)
    return listed("explain", "--json", what)


def events(options: Mapping[str, Any]) -> Request[List[Dict[str, Any]]]:
    return listed("log", "--json", *words_of(options))


def _report(output: str) -> Dict[str, Any]:
    return Report(_object(output))


def report(
    what: Union[None, int, Path], instance: Union[None, int, str]
) -> Request[Dict[str, Any]]:
    words = ["report", "--json", *words_of({"instance": instance})]
    if what is not None:
        words.append(str(what) if isinstance(what, int) else os.fspath(what))
    return Request(words, _report)


def drain(executors: Sequence[Union[int, str]], wait: bool) -> Request[None]:
    return plain("drain", *words_of({"wait": wait}), *map(str, executors))


def plan(request: Request[int]) -> Request[List[str]]:
    """The tasks of a submission that is not made, a line for each."""
    words = [request.words[0], "--dry-run", *request.words[1:]]
    return Request(words, lambda output: output.splitlines(), request.given)


def followed(request: Request[int]) -> Request[None]:
    """A submission whose results are waited for, each a line."""
    words = [request.words[0], "--wait", "--json", "--quiet", *request.words[1:]]
    return Request(words, _nothing, request.given, fine=(0, TASKS_FAILED))


def measured(instance: int, baseline: Optional[float]) -> Request[Dict[str, Any]]:
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "metrics")

    def metrics(_: str) -> Dict[str, Any]:
        with open(path) as file:
            return _object(file.read())

    words = ["results", "--json", "--metrics=" + path]
    if baseline is not None:
        words.append("--baseline=%gs" % baseline)
    return Request([*words, str(instance)], metrics, fine=(0, TASKS_FAILED), folder=folder)


def plain(*words: str) -> Request[None]:
    return Request(list(words), _nothing)


def listed(*words: str) -> Request[List[Dict[str, Any]]]:
    return Request(list(words), _lines)


def described(*words: str) -> Request[Dict[str, Any]]:
    return Request(list(words), _object)


# Data.


def objects(pattern: Optional[str], options: Mapping[str, Any]) -> Request[List[Dict[str, Any]]]:
    return listed("data", "ls", "--json", *words_of(options), *_if_any(pattern))


def holders(names: Sequence[str], options: Mapping[str, Any]) -> Request[List[Dict[str, Any]]]:
    return listed("data", "where", "--json", *words_of(options), *names)


def put(files: Sequence[Path], options: Mapping[str, Any]) -> Request[None]:
    return plain("data", "put", *words_of(options), *[os.fspath(file) for file in files])


def broadcast(objects: Sequence[Path], to: Sequence[str]) -> Request[List[str]]:
    from ._files import File

    names = [one.url if isinstance(one, File) else os.fspath(one) for one in objects]
    wanted = [word for resource in to for word in ("--to", resource)]
    request = listed("data", "broadcast", "--quiet", "--json", *wanted, "--", *names)
    return request.then(_holding)


def _holding(results: List[Dict[str, Any]]) -> List[str]:
    return sorted(one["executor"] for one in results if one["status"] == "done")


def fetch(name: str, file: Path, options: Mapping[str, Any]) -> Request[None]:
    return plain("data", "get", *words_of(options), name, os.fspath(file))


def read(name: str, options: Mapping[str, Any]) -> Request[bytes]:
    words = ["data", "get", *words_of(options), name]
    return Request(words, lambda output: output.encode("utf-8", "surrogateescape"))


def drop(names: Sequence[str], options: Mapping[str, Any]) -> Request[None]:
    return plain("data", "rm", *words_of(options), *names)


# Provisioning.


def queue(verb: str, scheduler: Path, options: Mapping[str, Any]) -> Request[None]:
    return plain("provision", verb, *words_of(options), os.fspath(scheduler))


def queue_plan(name: Optional[str]) -> Request[Dict[str, Any]]:
    return described("provision", "plan", "--json", *_if_any(name))


def queue_log(name: Optional[str], count: int) -> Request[List[Dict[str, Any]]]:
    return listed("provision", "log", "--json", "--count=%d" % count, *_if_any(name))


def queue_status(name: str, log: int) -> Request[Dict[str, Any]]:
    return described("provision", "show", "--json", "--log=%d" % log, name)


def _if_any(word: Optional[str]) -> List[str]:
    return [] if word is None else [word]
