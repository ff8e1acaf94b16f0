"""``falkon.AsyncClient``: the client for asyncio."""

import asyncio
import os
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
from ._client import _NOT_ALL_WELL, answer_of, command_of, table
from ._requests import Path, Request, Result, Text

T = TypeVar("T")

RESULT_BYTES_MAX = 1 << 26
"""The longest result."""


class AsyncClient:
    """:class:`falkon.Client` with coroutines. What is cancelled is not waited for
    any longer; tasks go on."""

    def __init__(self, access: Optional[Path] = None):
        self.access = access

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

    def instance(self, id: int) -> "AsyncInstance":
        """An instance that was submitted before, by its number."""
        return AsyncInstance(self, id)

    async def status(self) -> Dict[str, Any]:
        """As :meth:`falkon.Client.status`."""
        return await self.ask(_requests.status())

    async def put(self, *files: Path, key: Optional[str] = None, replicas: int = 1) -> None:
        """As :meth:`falkon.Data.put`."""
        words = _requests.words_of({"key": key, "replicas": replicas})
        await self.ask(_requests.plain("data", "put", *words, *(os.fspath(file) for file in files)))

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
        words = _requests.results_words(self.id, first, wait)
        request = Request(words, lambda said: None, fine=(0, _NOT_ALL_WELL))
        process = await self.client._start(request)
        try:
            assert process.stdout is not None and process.stderr is not None
            async for line in process.stdout:
                yield _requests.result_of(line)
            complaint = await process.stderr.read()
            answer_of(request, await process.wait(), b"", complaint)
        finally:
            await _end(process)

    async def wait(self) -> Dict[str, Any]:
        """Waits until all its tasks have ended; returns its status then."""
        words = ["wait", "--quiet", str(self.id)]
        await self.client.ask(Request(words, lambda said: None, fine=(0, _NOT_ALL_WELL)))
        return await self.status()

    async def report(self) -> Any:
        """As :meth:`falkon.Instance.report`, without a column for each time."""
        return table([vars(one) for one in await self.client.ask(_requests.results_now(self.id))])

    async def cancel(self, *tasks: int) -> None:
        """As :meth:`falkon.Instance.cancel`."""
        await self.client.ask(_requests.cancel(self.id, tasks))

    async def destroy(self) -> None:
        """As :meth:`falkon.Instance.destroy`."""
        await self.client.ask(_requests.plain("destroy", str(self.id)))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
        await process.wait()
