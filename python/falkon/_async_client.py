"""``falkon.AsyncClient``: the client for asyncio."""

import asyncio
import os
import tempfile
from typing import (
    Any,
    AsyncIterator,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import _requests
from ._client import (
    SHOWN_SECONDS,
    answer_of,
    command_of,
    read_metrics,
    result_table,
    status_tables,
    submission,
)
from ._progress import Progress
from ._requests import Path, Request, Result, Text

T = TypeVar("T")

RESULT_BYTES_MAX = 1 << 26
"""The longest result."""


class AsyncClient:
    """:class:`falkon.Client` with coroutines. What is cancelled is not waited for
    any longer; tasks go on."""

    def __init__(self, access: Optional[Path] = None):
        self.access = access
        self.data = AsyncData(self)
        self.provision = AsyncProvision(self)

    async def _start(self, request: "Request[Any]") -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command_of(self.access, request),
            stdin=asyncio.subprocess.DEVNULL if request.given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=RESULT_BYTES_MAX,
        )

    async def ask(self, request: "Request[T]") -> T:
        """Makes a request, any that :class:`falkon.Client` makes."""
        process = await self._start(request)
        try:
            said, complaint = await process.communicate(request.given)
        finally:
            await _end(process)
        return answer_of(request, process.returncode or 0, said, complaint)

    async def submit(
        self,
        command: Sequence[Text] = (),
        *,
        each: Union[None, Path, Sequence[Path]] = None,
        lines: Optional[Iterable[str]] = None,
        range: Union[None, range, str, Sequence[Any]] = None,
        **options: Any,
    ) -> "AsyncInstance":
        """As :meth:`falkon.Client.submit`."""
        request = _requests.submit(command, each, lines, range, options)
        return AsyncInstance(self, await self.ask(request))

    async def submit_tasks(
        self, tasks: Iterable[Mapping[str, Any]], **options: Any
    ) -> "AsyncInstance":
        """As :meth:`falkon.Client.submit_tasks`."""
        return AsyncInstance(self, await self.ask(_requests.submit_tasks(tasks, options)))

    async def submit_file(self, path: Path, **options: Any) -> "AsyncInstance":
        """As :meth:`falkon.Client.submit_file`."""
        request = _requests.submit_file("tasks", path, options)
        return AsyncInstance(self, await self.ask(request))

    async def submit_workflow(self, path: Path, **options: Any) -> "AsyncInstance":
        """As :meth:`falkon.Client.submit_workflow`."""
        request = _requests.submit_file("workflow", path, options)
        return AsyncInstance(self, await self.ask(request))

    async def plan(self, command: Sequence[Text] = (), **options: Any) -> List[str]:
        """As :meth:`falkon.Client.plan`."""
        return await self.ask(_requests.plan(submission(command, options)))

    async def run(self, command: Sequence[Text] = (), **options: Any) -> AsyncIterator[Result]:
        """As :meth:`falkon.Client.run`, for ``async for``."""
        async for result in self._results(_requests.followed(submission(command, options))):
            yield result

    async def _results(self, request: Request[None]) -> AsyncIterator[Result]:
        process = await self._start(request)
        try:
            assert process.stdout is not None and process.stderr is not None
            if process.stdin is not None:
                process.stdin.write(request.given or b"")
                process.stdin.write_eof()
            async for line in process.stdout:
                yield _requests.result_of(line)
            complaint = await process.stderr.read()
            answer_of(request, await process.wait(), b"", complaint)
        finally:
            await _end(process)

    def instance(self, id: int) -> "AsyncInstance":
        """An instance that was submitted before, by its number."""
        return AsyncInstance(self, id)

    async def instances(self) -> List["AsyncInstance"]:
        """As :meth:`falkon.Client.instances`."""
        return [AsyncInstance(self, one["id"]) for one in (await self.status())["instances"]]

    async def status(self) -> Dict[str, Any]:
        """As :meth:`falkon.Client.status`."""
        return await self.ask(_requests.status())

    async def report(self) -> Dict[str, Any]:
        """As :meth:`falkon.Client.report`."""
        return status_tables(await self.status())

    async def stop(self) -> None:
        """As :meth:`falkon.Client.stop`."""
        await self.ask(_requests.plain("stop"))


class AsyncInstance:
    """:class:`falkon.Instance` with coroutines."""

    def __init__(self, client: AsyncClient, id: int):
        self.client = client
        self.id = id

    def __repr__(self) -> str:
        return "<falkon.AsyncInstance %d>" % self.id

    async def status(self) -> Dict[str, Any]:
        """As :meth:`falkon.Instance.status`."""
        return await self.client.ask(_requests.instance_status(self.id))

    async def tasks(self, first: int = 0, count: int = 1000) -> List[Dict[str, Any]]:
        """As :meth:`falkon.Instance.tasks`."""
        return await self.client.ask(_requests.tasks(self.id, first, count))

    async def results(self, first: int = 0, wait: bool = True) -> AsyncIterator[Result]:
        """As :meth:`falkon.Instance.results`, for ``async for``."""
        async for result in self.client._results(_requests.results(self.id, first, wait)):
            yield result

    async def wait(self, progress: Optional[bool] = None) -> Dict[str, Any]:
        """As :meth:`falkon.Instance.wait`."""
        with Progress(progress, unit="tasks") as shown:
            ended = asyncio.ensure_future(self.client.ask(_requests.end(self.id)))
            try:
                while shown.wanted:
                    done, _ = await asyncio.wait([ended], timeout=SHOWN_SECONDS)
                    if done:
                        break
                    shown.show_status(await self.status())
                await ended
            finally:
                ended.cancel()
            status = await self.status()
            shown.show_status(status)
        return status

    async def report(self) -> Any:
        """As :meth:`falkon.Instance.report`."""
        return result_table(await self.client.ask(_requests.results_now(self.id)))

    async def metrics(self, baseline: Optional[float] = None) -> Dict[str, Any]:
        """As :meth:`falkon.Instance.metrics`."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "metrics")
            await self.client.ask(_requests.measured(self.id, file, baseline))
            return read_metrics(file)

    async def cancel(self, *tasks: Union[int, range]) -> None:
        """As :meth:`falkon.Instance.cancel`."""
        await self.client.ask(_requests.cancel(self.id, tasks))

    async def destroy(self) -> None:
        """As :meth:`falkon.Instance.destroy`."""
        await self.client.ask(_requests.plain("destroy", str(self.id)))


class AsyncData:
    """:class:`falkon.Data` with coroutines: ``client.data``."""

    def __init__(self, client: AsyncClient):
        self._client = client

    async def ls(self, pattern: Optional[str] = None, **options: Any) -> List[Dict[str, Any]]:
        """As :meth:`falkon.Data.ls`."""
        return await self._client.ask(_requests.objects(pattern, options))

    async def where(self, *objects: str, **options: Any) -> List[Dict[str, Any]]:
        """As :meth:`falkon.Data.where`."""
        return await self._client.ask(_requests.holders(objects, options))

    async def put(self, *files: Path, key: Optional[str] = None, replicas: int = 1) -> None:
        """As :meth:`falkon.Data.put`."""
        await self._client.ask(_requests.put(files, {"key": key, "replicas": replicas}))

    async def fetch(self, object: str, file: Path, **options: Any) -> None:
        """As :meth:`falkon.Data.fetch`."""
        await self._client.ask(_requests.fetch(object, file, options))

    async def read(self, object: str, **options: Any) -> bytes:
        """As :meth:`falkon.Data.read`."""
        return await self._client.ask(_requests.read(object, options))

    async def rm(self, *objects: str, force: bool = False, **options: Any) -> None:
        """As :meth:`falkon.Data.rm`."""
        await self._client.ask(_requests.drop(objects, {"force": force, **options}))


class AsyncProvision:
    """:class:`falkon.Provision` with coroutines: ``client.provision``."""

    def __init__(self, client: AsyncClient):
        self._client = client

    async def add(self, scheduler: Path, **options: Any) -> None:
        """As :meth:`falkon.Provision.add`."""
        await self._client.ask(_requests.queue("add", scheduler, options))

    async def status(self) -> Dict[str, Any]:
        """As :meth:`falkon.Provision.status`."""
        return await self._client.ask(_requests.described("provision", "list", "--json"))

    async def show(self, queue: str, log: int = 20) -> Dict[str, Any]:
        """As :meth:`falkon.Provision.show`."""
        return await self._client.ask(_requests.queue_status(queue, log))

    async def plan(self, queue: Optional[str] = None) -> Dict[str, Any]:
        """As :meth:`falkon.Provision.plan`."""
        return await self._client.ask(_requests.queue_plan(queue))

    async def log(self, queue: Optional[str] = None, count: int = 1000) -> List[Dict[str, Any]]:
        """As :meth:`falkon.Provision.log`."""
        return await self._client.ask(_requests.queue_log(queue, count))

    async def once(self, scheduler: Path, nodes: int, **options: Any) -> None:
        """As :meth:`falkon.Provision.once`."""
        await self._client.ask(_requests.queue("once", scheduler, {"nodes": nodes, **options}))

    async def pause(self, queue: str) -> None:
        """As :meth:`falkon.Provision.pause`."""
        await self._client.ask(_requests.plain("provision", "pause", queue))

    async def resume(self, queue: str) -> None:
        """As :meth:`falkon.Provision.resume`."""
        await self._client.ask(_requests.plain("provision", "resume", queue))

    async def remove(self, queue: str) -> None:
        """As :meth:`falkon.Provision.remove`."""
        await self._client.ask(_requests.plain("provision", "remove", queue))

    async def drop(self, allocation: int) -> None:
        """As :meth:`falkon.Provision.drop`."""
        await self._client.ask(_requests.plain("provision", "drop", str(allocation)))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
        await process.wait()
