"""``falkon.Client``: what the command line does, from Python."""

import logging
import os
import subprocess
import tempfile
from contextlib import contextmanager, nullcontext
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import _notebook, _requests
from ._access import check_one
from ._program import find
from ._progress import Progress
from ._requests import ClientError, Path, Request, Result, Text

T = TypeVar("T")

LOG = logging.getLogger("falkon")
SHOWN_SECONDS = 0.5
"""How often a progress bar is brought up to date."""


def command_of(access: Optional[Path], request: "Request[Any]") -> List[str]:
    """The whole command line of a request."""
    words = list(request.words)
    if access is not None:
        # Behind the words that name the command.
        at = 2 if words[0] == "data" else 1
        words[at:at] = ["--access", os.fspath(access)]
    command = [find(), *words]
    LOG.debug("%s", command)
    return command


def answer_of(request: "Request[T]", code: int, output: bytes, errors: bytes) -> T:
    """The answer that the program's output holds."""
    text = errors.decode("utf-8", "replace").strip()
    if code not in request.fine:
        raise ClientError(text or "falkon ended with exit status %d" % code, code)
    if text:
        LOG.debug("%s", text)
    return request.parse(output.decode("utf-8", "surrogateescape"))


class Client:
    """A dispatcher's client.

    ``access`` is the access file of the dispatcher; without it
    ``FALKON_ACCESS`` names it, and else it is that of a dispatcher which was
    started without ``--dir``. Every method may raise :class:`falkon.ClientError`.

    >>> client = falkon.Client("access.json")  # doctest: +SKIP
    >>> instance = client.submit(["gzip", "{}"], each="*.log")  # doctest: +SKIP
    >>> all(result.ok for result in instance.results())  # doctest: +SKIP
    True
    """

    def __init__(self, access: Optional[Path] = None):
        check_one(access)
        self.access = access
        self.data = Data(self)
        self.provision = Provision(self)

    def ask(self, request: "Request[T]") -> T:
        """Makes a request (for what is built on this class)."""
        stdin = subprocess.DEVNULL if request.given is None else subprocess.PIPE
        with request.folder or nullcontext(), self._process(request, stdin) as process:
            output, errors = process.communicate(request.given)
            return answer_of(request, process.returncode, output, errors)

    @contextmanager
    def _process(
        self, request: "Request[Any]", stdin: Any, stdout: int = subprocess.PIPE
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """A process of the program, which is killed in the end."""
        command = command_of(self.access, request)
        with subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def _results(self, make: Callable[[], Request[None]]) -> Iterator[Result]:
        """The results that a request gives, each a line; it is made when the first one is
        asked for."""
        request = make()
        with tempfile.TemporaryFile() as given:
            # A file: the program need not wait for who reads its output.
            given.write(request.given or b"")
            given.seek(0)
            stdin = subprocess.DEVNULL if request.given is None else given
            with self._process(request, stdin) as process:
                for line in process.stdout or ():
                    yield _requests.result_of(line)
                _check_end(request, process)

    def _wait(self, instance: "Instance", progress: Optional[bool]) -> Dict[str, Any]:
        """The end of :meth:`Instance.wait`."""
        request = _requests.end(instance.id)
        with Progress(progress, unit="tasks") as shown:
            with self._process(request, subprocess.DEVNULL, subprocess.DEVNULL) as process:
                while shown.wanted:
                    try:
                        process.wait(SHOWN_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        shown.show_status(instance.status())
                _check_end(request, process)
            status = instance.status()
            shown.show_status(status)
        return status

    # Submitting.

    def submit(
        self,
        command: Sequence[Text] = (),
        *,
        each: Union[None, Path, Sequence[Path]] = None,
        lines: Optional[Iterable[str]] = None,
        range: Union[None, range, str, Sequence[Any]] = None,
        **options: Any,
    ) -> "Instance":
        """Submits a command, or a call, for each combination of values.

        ``command`` is a program and its arguments, with placeholders as on the
        command line (``{}``, ``{/}``, …). Values come from ``each`` (file names
        and patterns), ``lines`` and ``range`` (a ``range``, or ``"1-100:2"``).
        All options of ``falkon submit`` are arguments here, with underscores:
        ``input=["NAME=SOURCE"]``, ``shell=True``, ``timeout=60``, ``retries=2``,
        ``memory="2GiB"``, ``env={"A": "1"}``, ``call="module:function"``, …
        """
        request = _requests.submit(command, each, lines, range, options)
        return self.ask(request.then(self._submitted))

    def submit_tasks(self, tasks: Iterable[Mapping[str, Any]], **options: Any) -> "Instance":
        """Submits tasks that are described one by one, with the fields of a task
        file (docs/task-files.md); options are defaults for them."""
        return self.ask(_requests.submit_tasks(tasks, options).then(self._submitted))

    def submit_file(self, path: Path, **options: Any) -> "Instance":
        """Submits the tasks of a task file."""
        return self.ask(_requests.submit_file("tasks", path, options).then(self._submitted))

    def submit_workflow(self, path: Path, **options: Any) -> "Instance":
        """Submits a workflow in WfFormat, as WfCommons writes it."""
        return self.ask(_requests.submit_file("workflow", path, options).then(self._submitted))

    def everywhere(self, command: Sequence[Text] = (), **options: Any) -> "Instance":
        """Submits a command, or a call, that runs once on each executor; with
        ``joining=True`` also on those that join later, until the instance is
        cancelled. Options are those of ``falkon everywhere``; each result names its
        executor."""
        request = _requests.everywhere(command, options)
        return self.ask(request.then(self._submitted))

    def broadcast(self, *objects: Path, to: Union[str, Sequence[str]] = ()) -> List[str]:
        """Brings files or objects (paths, URLs, ``cache:KEY``) into the caches of all
        executors, ahead of the tasks that read them; with ``to`` only of those that offer
        these resources (``"gpus"``, ``"bigmem=2"``). Returns the names of the executors
        that have them."""
        return self.ask(_requests.broadcast(objects, [to] if isinstance(to, str) else to))

    def plan(self, command: Sequence[Text] = (), **options: Any) -> List[str]:
        """The tasks that :meth:`submit` would submit, a line for each; none is submitted."""
        return self.ask(_requests.plan(submission(command, options)))

    def run(self, command: Sequence[Text] = (), **options: Any) -> Iterator[Result]:
        """Submits as :meth:`submit` does, and yields results as they come; with
        ``tasks="FILE"`` or ``workflow="FILE"`` those of a file.

        ``out="DIR"`` keeps results in a folder, ``resume="DIR"`` goes on with what
        has not succeeded there; ``keep_order=True`` is in the order of submission,
        ``metrics="FILE"`` writes what the run is measured by. Tasks go on if the
        iterator is given up.
        """
        return self._results(lambda: _requests.followed(submission(command, options)))

    def _submitted(self, id: int) -> "Instance":
        LOG.info("submitted instance %d", id)
        return self.instance(id)

    # Asking.

    def instance(self, id: int) -> "Instance":
        """An instance that was submitted before, by its number."""
        return Instance(self, id)

    def instances(self) -> List["Instance"]:
        """All instances that the dispatcher has."""
        return self.ask(_requests.status().then(self._all_of))

    def _all_of(self, status: Dict[str, Any]) -> List["Instance"]:
        return [self.instance(one["id"]) for one in status["instances"]]

    def status(self) -> Dict[str, Any]:
        """How it stands: ``instances`` and ``executors`` (lists), ``now``,
        ``started`` (seconds since 1970), ``version``."""
        return self.ask(_requests.status())

    def drain(self, *executors: Union[int, str], wait: bool = False) -> None:
        """Gives executors no more tasks, by their numbers or names; what they run goes on.
        With ``wait`` returns when they have no tasks any more, or are gone."""
        return self.ask(_requests.drain(executors, wait))

    def undrain(self, *executors: Union[int, str]) -> None:
        """Gives executors tasks again that were drained."""
        return self.ask(_requests.plain("undrain", *map(str, executors)))

    def events(self, **options: Any) -> List[Dict[str, Any]]:
        """What happened on the dispatcher, as far as it keeps it, each with ``time`` and
        ``event`` (docs/events.md). Options are those of ``falkon log``: ``instance``, ``tasks``,
        ``executor``, ``kind``, ``failed``, ``since``, ``until``."""
        return self.ask(_requests.events(options))

    def explain_idle(self) -> List[Dict[str, Any]]:
        """Why slots of executors are idle: an entry for each ``reason``, with the free ``cpus``,
        how many ``executors`` they are and ``some`` of them by name."""
        return self.ask(_requests.listed("explain", "--json"))

    def report(
        self, what: Union[None, int, Path] = None, instance: Union[None, int, str] = None
    ) -> Dict[str, Any]:
        """How a run went (docs/events.md): of a directory that ``falkon run --out`` or ``falkon
        start --dir`` wrote, and there of one ``instance`` if it is given; or of an instance of the
        running dispatcher, by its number or name, or all of them. A notebook shows it."""
        return self.ask(_requests.report(what, instance))

    def _repr_html_(self) -> str:
        try:
            return _notebook.of_status(self.status())
        except ClientError as error:
            return _notebook.of_error("falkon.Client", error)

    def stop(self) -> None:
        """Stops the dispatcher; started again with the same directory it goes on."""
        return self.ask(_requests.plain("stop"))


class Instance:
    """Tasks that were submitted together."""

    def __init__(self, client: Client, id: int):
        self.client = client
        self.id = id

    def __repr__(self) -> str:
        return "<falkon.Instance %d>" % self.id

    def status(self) -> Dict[str, Any]:
        """How many ``tasks`` there are, and how many of them are ``waiting``,
        ``ready``, ``dispatched``, ``done``, ``failed``, ``cancelled``; ``state``
        is ``complete`` when all have ended."""
        return self.client.ask(_requests.instance_status(self.id))

    def tasks(self, first: int = 0, count: int = 1000) -> List[Dict[str, Any]]:
        """The tasks, each with ``index``, ``id``, ``state`` and ``command``."""
        return self.client.ask(_requests.tasks(self.id, first, count))

    def results(self, first: int = 0, wait: bool = True) -> Iterator[Result]:
        """Results as they come, without the ``first`` so many; with
        ``wait=False`` those that there are."""
        return self.client._results(lambda: _requests.results(self.id, first, wait))

    def wait(self, progress: Optional[bool] = None) -> Dict[str, Any]:
        """Waits until all its tasks have ended; returns its status then.

        ``progress`` shows a bar, by default in a terminal and in a notebook.
        """
        return self.client._wait(self, progress)

    def report(self) -> Any:
        """The results there are as a table: a data frame if pandas is there, else
        a list of dictionaries. Times stand in columns of their own."""
        return self.client.ask(_requests.results_now(self.id).then(result_table))

    def metrics(self, baseline: Optional[float] = None) -> Dict[str, Any]:
        """Its metrics when all its tasks have ended: hit ratios, throughput, response time,
        utilization (docs/data.md). ``baseline`` are the seconds that the same takes with every
        access to the persistent store."""
        return self.client.ask(_requests.measured(self.id, baseline))

    def pause(self) -> None:
        """Sends none of its tasks to executors until :meth:`resume`; those that are there
        go on."""
        return self.client.ask(_requests.plain("pause", str(self.id)))

    def resume(self) -> None:
        """Lets it go on after :meth:`pause`."""
        return self.client.ask(_requests.plain("resume", str(self.id)))

    def set_priority(self, priority: int) -> None:
        """Has it go before all instances of a lower priority, which is 0 for others.

        Only the owner's access file sets one above 0."""
        return self.client.ask(_requests.plain("priority", str(self.id), str(priority)))

    def cancel(
        self,
        *tasks: Union[int, range],
        state: Union[None, str, Sequence[str]] = None,
        command: Optional[str] = None,
        executor: Optional[str] = None,
    ) -> None:
        """Cancels tasks, by their numbers and ranges of them; without any, all.

        Only those in a ``state`` or one of several (``"waiting"``, ``"ready"``, ``"sent"``,
        ``"running"``), with this text in their ``command`` line, and of the ``executor`` of
        this name, if any of these is given.
        """
        chosen = {"state": state, "command": command, "executor": executor}
        return self.client.ask(_requests.cancel(self.id, tasks, chosen))

    def retry(
        self,
        *tasks: Union[int, range],
        state: Union[None, str, Sequence[str]] = None,
        command: Optional[str] = None,
        executor: Optional[str] = None,
    ) -> int:
        """Has tasks run again that failed, under their numbers: by their numbers and ranges of
        them; without any, all that failed. Returns how many they are.

        ``state``, ``command`` and ``executor`` choose tasks as with :meth:`cancel`; tasks that
        were cancelled run again if they, or ``state="cancelled"``, are named.
        """
        chosen = {"state": state, "command": command, "executor": executor}
        return self.client.ask(_requests.retry(self.id, tasks, chosen))

    def tail(self, task: Union[int, str], stderr: bool = False, bytes: Optional[int] = None) -> str:
        """What a running task, by its number or name, has written so far to its standard output
        or ``stderr``: all of it, or the last ``bytes``."""
        return self.client.ask(_requests.tail(self.id, task, stderr, bytes))

    def explain(self, task: Union[None, int, str] = None) -> List[Dict[str, Any]]:
        """Why its tasks wait, one entry for all that wait for the same, or why one task does, or
        how it ended."""
        return self.client.ask(_requests.explain(self.id, task))

    def destroy(self) -> None:
        """Frees it, with its tasks and results."""
        return self.client.ask(_requests.plain("destroy", str(self.id)))


class Data:
    """Data objects in executors' caches: ``client.data``."""

    def __init__(self, client: Client):
        self._client = client

    def ls(self, pattern: Optional[str] = None, **options: Any) -> List[Dict[str, Any]]:
        """The objects that the dispatcher knows; options as with ``falkon data ls``."""
        return self._client.ask(_requests.objects(pattern, options))

    def where(self, *objects: str, **options: Any) -> List[Dict[str, Any]]:
        """The executors that hold objects (paths, URLs, ``cache:KEY``, ids)."""
        return self._client.ask(_requests.holders(objects, options))

    def put(self, *files: Path, key: Optional[str] = None, replicas: int = 1) -> None:
        """Puts files into caches, for tasks to read as ``cache:KEY``; the key is
        by default the file's name without folders."""
        return self._client.ask(_requests.put(files, {"key": key, "replicas": replicas}))

    def fetch(self, object: str, file: Path, **options: Any) -> None:
        """Brings an object from a cache to a file."""
        return self._client.ask(_requests.fetch(object, file, options))

    def read(self, object: str, **options: Any) -> bytes:
        """Brings an object from a cache here."""
        return self._client.ask(_requests.read(object, options))

    def rm(self, *objects: str, force: bool = False, **options: Any) -> None:
        """Drops objects from caches; with ``force`` also what tasks still need."""
        return self._client.ask(_requests.drop(objects, {"force": force, **options}))


class Provision:
    """Executors from batch schedulers: ``client.provision``. Options are those of
    the commands ``falkon provision …``, with underscores."""

    def __init__(self, client: Client):
        self._client = client

    def add(self, scheduler: Path, **options: Any) -> None:
        """Adds a queue of a scheduler (``"slurm"``, …, ``"auto"``, or a file)."""
        return self._client.ask(_requests.queue("add", scheduler, options))

    def status(self) -> Dict[str, Any]:
        """``queues``, ``allocations`` and ``log``."""
        return self._client.ask(_requests.described("provision", "list", "--json"))

    def show(self, queue: str, log: int = 20) -> Dict[str, Any]:
        """A queue with its allocations and the last ``log`` decisions about it."""
        return self._client.ask(_requests.queue_status(queue, log))

    def plan(self, queue: Optional[str] = None) -> Dict[str, Any]:
        """The requests that would be made now, and the reasons."""
        return self._client.ask(_requests.queue_plan(queue))

    def log(self, queue: Optional[str] = None, count: int = 1000) -> List[Dict[str, Any]]:
        """Every decision with its reason, at most ``count``."""
        return self._client.ask(_requests.queue_log(queue, count))

    def once(self, scheduler: Path, nodes: int, **options: Any) -> None:
        """Asks for nodes now, whatever there is to do."""
        return self._client.ask(_requests.queue("once", scheduler, {"nodes": nodes, **options}))

    def pause(self, queue: str) -> None:
        """Asks nothing more of a queue; what it has stays until it is idle."""
        return self._client.ask(_requests.plain("provision", "pause", queue))

    def resume(self, queue: str) -> None:
        """Asks a queue again that was paused."""
        return self._client.ask(_requests.plain("provision", "resume", queue))

    def remove(self, queue: str) -> None:
        """Gives a queue up: its jobs are cancelled once their tasks have ended."""
        return self._client.ask(_requests.plain("provision", "remove", queue))

    def drop(self, allocation: int) -> None:
        """Gives up one allocation."""
        return self._client.ask(_requests.plain("provision", "drop", str(allocation)))


def submission(command: Sequence[Text], options: Dict[str, Any]) -> Request[int]:
    named = {name: options.pop(name, None) for name in ("each", "lines", "range")}
    return _requests.submit(command, named["each"], named["lines"], named["range"], options)


def _check_end(request: "Request[Any]", process: "subprocess.Popen[bytes]") -> None:
    """Waits until a process ends, and raises what went wrong."""
    errors = process.stderr.read() if process.stderr else b""
    answer_of(request, process.wait(), b"", errors)


def result_table(results: List[Result]) -> Any:
    """Results as a table; their times stand in columns of their own."""
    rows = []
    for result in results:
        row = dict(vars(result))
        row.pop("more")
        row.update(row.pop("times"))
        rows.append(row)
    return table(rows)


def table(rows: List[Dict[str, Any]]) -> Any:
    """Rows as a data frame if pandas is there, else as they are."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)
