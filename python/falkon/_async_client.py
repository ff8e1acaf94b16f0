"""``falkon.AsyncClient``: the client for asyncio.

Its methods are those of ``_client.py``, whose requests are awaited here. Type checkers
read them in ``_async_client.pyi`` (``python/tests/stubs.py`` writes it).
"""

import asyncio
import collections.abc
import inspect
from contextlib import asynccontextmanager, nullcontext
from typing import Any, AsyncIterator, Callable, Dict, ForwardRef, Optional, TypeVar, get_args, get_origin

from . import _client, _requests
from ._access import check_one
from ._client import SHOWN_SECONDS, answer_of, command_of
from ._progress import Progress
from ._requests import Path, Request, Result

T = TypeVar("T")

RESULT_BYTES_MAX = 1 << 26
"""The longest result."""


def coroutines_of(described: type) -> Callable[[type], type]:
    """Gives a class the methods of another one, ``Client`` for ``AsyncClient``, as
    coroutines: what these make requests with is awaited. Methods that yield results are
    asynchronous iterators. A method that the class has itself stays."""

    def given(kind: type) -> type:
        for name, function in vars(described).items():
            if not inspect.isfunction(function):
                continue
            own = vars(kind).get(name)
            if own is not None:
                delattr(kind, name)  # Documents list methods in the order of the other class.
            elif name.startswith("_"):
                own = function
            setattr(kind, name, own or _awaited(function, described.__name__, kind))
        return kind

    return given


def _awaited(function: Callable[..., Any], described: str, kind: type) -> Callable[..., Any]:
    doc = "As :meth:`falkon.%s.%s`" % (described, function.__name__)
    signature = inspect.signature(function)
    if get_origin(signature.return_annotation) is collections.abc.Iterator:

        async def iterate(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for result in function(self, *args, **kwargs):
                yield result

        made: Any = iterate
        doc += ", for ``async for``."
    else:

        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await function(self, *args, **kwargs)

        made = call
        doc += "."
    made.__name__ = function.__name__
    made.__qualname__ = "%s.%s" % (kind.__name__, function.__name__)
    made.__doc__ = doc
    made.__signature__ = signature.replace(return_annotation=_hint(signature.return_annotation))
    made.__annotations__ = dict(function.__annotations__, **{"return": made.__signature__.return_annotation})
    return made  # type: ignore[no-any-return]


def _hint(hint: Any) -> Any:
    """The annotation of what a coroutine gives, or an asynchronous iterator."""
    if isinstance(hint, str):
        return "Async" + hint
    if isinstance(hint, ForwardRef):
        return ForwardRef("Async" + hint.__forward_arg__)
    if get_origin(hint) is collections.abc.Iterator:
        return AsyncIterator[get_args(hint)]
    if any(isinstance(one, ForwardRef) for one in get_args(hint)):
        return hint.copy_with(tuple(map(_hint, get_args(hint))))
    return hint


@coroutines_of(_client.Client)
class AsyncClient:
    """:class:`falkon.Client` with coroutines. What is cancelled is not waited for
    any longer; tasks go on."""

    def __init__(self, access: Optional[Path] = None):
        check_one(access)
        self.access = access
        self.data = AsyncData(self)
        self.provision = AsyncProvision(self)

    @asynccontextmanager
    async def _process(self, request: "Request[Any]") -> AsyncIterator[asyncio.subprocess.Process]:
        """A process of the program, which is killed in the end."""
        process = await asyncio.create_subprocess_exec(
            *command_of(self.access, request),
            stdin=asyncio.subprocess.DEVNULL if request.given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=RESULT_BYTES_MAX,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                try:
                    process.kill()
                except ProcessLookupError:
                    pass
                await process.wait()

    async def ask(self, request: "Request[T]") -> T:
        """Makes a request, any that :class:`falkon.Client` makes."""
        with request.folder or nullcontext():
            async with self._process(request) as process:
                output, errors = await process.communicate(request.given)
            return answer_of(request, process.returncode or 0, output, errors)

    async def _results(self, make: Callable[[], Request[None]]) -> AsyncIterator[Result]:
        """The results that a request gives, each a line; it is made when the first one is
        asked for."""
        request = make()
        async with self._process(request) as process:
            assert process.stdout is not None and process.stderr is not None
            if process.stdin is not None:
                process.stdin.write(request.given or b"")
                process.stdin.write_eof()
            async for line in process.stdout:
                yield _requests.result_of(line)
            errors = await process.stderr.read()
            answer_of(request, await process.wait(), b"", errors)

    async def _wait(self, instance: "AsyncInstance", progress: Optional[bool]) -> Dict[str, Any]:
        """The end of :meth:`AsyncInstance.wait`."""
        with Progress(progress, unit="tasks") as shown:
            ended = asyncio.ensure_future(self.ask(_requests.end(instance.id)))
            try:
                while shown.wanted:
                    done, _ = await asyncio.wait([ended], timeout=SHOWN_SECONDS)
                    if done:
                        break
                    shown.show_status(await instance.status())
                await ended
            finally:
                ended.cancel()
            status = await instance.status()
            shown.show_status(status)
        return status

    def instance(self, id: int) -> "AsyncInstance":
        """An instance that was submitted before, by its number."""
        return AsyncInstance(self, id)


@coroutines_of(_client.Instance)
class AsyncInstance:
    """:class:`falkon.Instance` with coroutines."""

    def __init__(self, client: AsyncClient, id: int):
        self.client = client
        self.id = id

    def __repr__(self) -> str:
        return "<falkon.AsyncInstance %d>" % self.id


@coroutines_of(_client.Data)
class AsyncData:
    """:class:`falkon.Data` with coroutines: ``client.data``."""

    def __init__(self, client: AsyncClient):
        self._client = client


@coroutines_of(_client.Provision)
class AsyncProvision:
    """:class:`falkon.Provision` with coroutines: ``client.provision``."""

    def __init__(self, client: AsyncClient):
        self._client = client
