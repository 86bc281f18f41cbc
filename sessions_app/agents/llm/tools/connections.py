"""Connections to tool servers: each is kept by a task of its own, which also ends it.

Imported late (`library`): the library of the protocol takes half a second.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import anyio
import httpx2
import structlog
from mcp import ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParamsMeta,
    Tool,
)

from conversations.payloads import halves
from sessions_app.agents.llm import transport
from sessions_app.agents.llm.tools.faults import ToolFault
from sessions_app.agents.llm.tools.program import Program
from sessions_app.agents.llm.tools.servers import ToolServer, Way
from sessions_app.event_loops import uncancelled
from sessions_app.outbound.hosts import HostRefused
from sessions_app.outbound.proxies import UnusableProxy

logger = structlog.stdlib.get_logger(__name__)

CONNECT_S = 30.0
"""A program may have to be downloaded first."""
PAGES_MAX = 20
KEY_META = "convserver/idempotency-key"
"""The member of `_meta` that is the same whenever a call is repeated: a server can recognise it by that."""
ENDED = "it has ended, or closed the connection"
NO_ANSWER = "it didn't answer in time"
UNREACHABLE = "it can't be reached"
REFUSED = "no public address was found for its host"
UNAUTHORIZED = "it rejected the key"
NOT_ONE = "what answers at its address is no tool server"
NO_TOOLS = "its list of tools can't be read"
_JSON_TYPES = ("application/json", "text/event-stream")

R = TypeVar("R", CallToolResult, ListToolsResult)


class Connection:
    """A connection to one tool server; its methods are called on one event loop."""

    def __init__(self, server: ToolServer) -> None:
        self.server = server
        self._scope = anyio.CancelScope()
        self._session: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._program: Program | None = None
        self._fault: ToolFault | None = None
        self._keeping = asyncio.create_task(self._keep())

    async def tools(self) -> list[Tool]:
        """Connect, and return the server's tools. Raise ToolFault."""
        tools: list[Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                for _ in range(PAGES_MAX):
                    params = PaginatedRequestParams(cursor=cursor)
                    page = await self._asked(ListToolsRequest(params=params), ListToolsResult)
                    tools += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except TimeoutError:
            raise ToolFault(NO_ANSWER) from None
        except MCPError as error:
            raise ToolFault(NO_TOOLS) from error
        return tools

    async def call(self, name: str, arguments: Mapping[str, Any], key: str) -> CallToolResult:
        """Call a tool. Raise ToolFault if nothing is known of its outcome, and MCPError if it was refused."""
        meta = cast(RequestParamsMeta, {KEY_META: key})
        params = CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta)
        await self._connected()
        try:
            async with asyncio.timeout(self.server.call_s):
                return await self._asked(CallToolRequest(params=params), CallToolResult)
        except TimeoutError:
            raise ToolFault(f"{NO_ANSWER} ({self.server.call_s:g} seconds)") from None

    @property
    def is_open(self) -> bool:
        """Say whether it can be asked, or may become so."""
        return not self._keeping.done() and self._fault is None and not self._scope.cancel_called

    async def close(self) -> None:
        """End it, and the program behind it; a cancellation takes effect after that."""
        self._scope.cancel()
        await uncancelled(asyncio.wait({self._keeping}))

    async def _connected(self) -> ClientSession:
        try:
            return await asyncio.wait_for(asyncio.shield(self._session), CONNECT_S)
        except TimeoutError:
            raise ToolFault(NO_ANSWER) from None

    async def _asked(self, request: Any, result_type: type[R]) -> R:
        session = await self._connected()
        try:
            if self._program is not None:
                self._program.expect()
            # Not by `call_tool`, which also runs the patterns of the server's schemas on its results.
            return await session.send_request(request, result_type)
        except MCPError as error:
            if self._fault is not None or not self.is_open or _is_end(error):
                raise (self._fault or ToolFault(ENDED)) from error
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError, ValueError) as error:
            raise (
                self._fault or ToolFault(ENDED if not isinstance(error, ValueError) else NO_TOOLS)
            ) from error

    def fail(self, fault: ToolFault) -> None:
        """End it because of a fault, without waiting: what it does now is of no use, and it may never end."""
        self._fault = self._fault or fault
        if self._program is not None:
            self._program.has_failed = True
        self._scope.cancel()

    async def _keep(self) -> None:
        """Connect, and keep the connection until it is closed or broken."""
        try:
            with self._scope:
                async with self._streams() as (read, write):
                    client = Implementation(name="convserver", version="1")
                    async with ClientSession(read, write, client_info=client) as session:
                        await session.initialize()
                        self._session.set_result(session)
                        await anyio.sleep_forever()
        except Exception as error:  # whatever a stranger's server makes the library raise
            self._fault = self._fault or _fault_of(error)
            logger.info("A tool server failed", kind=type(error).__name__, error=str(self._fault))
        finally:
            if not self._session.done():
                self._session.set_exception(self._fault or ToolFault(ENDED))
                self._session.exception()  # it may be that nobody waits for it

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        server = self.server
        if server.way is Way.PROGRAM:
            self._program = Program(server, self.fail)
            async with self._program.running() as streams:
                yield streams
        elif server.way is Way.SSE:
            async with sse_client(
                server.url, httpx_client_factory=lambda *_, **__: self._client()
            ) as streams:
                yield streams
        else:
            async with (
                self._client() as client,
                streamable_http_client(server.url, http_client=client) as streams,
            ):
                yield streams

    def _client(self) -> httpx2.AsyncClient:
        """Return a client that asks this server alone. Raise UnusableProxy."""
        server = self.server
        return httpx2.AsyncClient(
            transport=transport.GuardedTransport(server.url, headers=dict(server.headers)),
            headers={"accept-encoding": "identity"},
            timeout=httpx2.Timeout(server.call_s, connect=transport.CONNECT_S),
            follow_redirects=False,
            trust_env=False,
            event_hooks={"response": [self._look_at]},
        )

    async def _look_at(self, response: httpx2.Response) -> None:
        """Remember why a server refuses, which the library keeps to itself; mend the JSON of an answer."""
        if response.status_code in (401, 403):
            self._fault = self._fault or ToolFault(f"{UNAUTHORIZED} ({response.status_code})")
        is_json = response.headers.get("content-type", "").partition(";")[0].strip() in _JSON_TYPES
        if is_json and "content-encoding" not in response.headers:
            response.stream = _Mended(cast(httpx2.AsyncByteStream, response.stream))


class _Mended(httpx2.AsyncByteStream):
    """A body with JSON that the library can read: it refuses bytes that are no UTF-8, and lone halves."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder, mended = codecs.getincrementaldecoder("utf-8")(errors="replace"), halves.WholeJson()
        async for part in self._body:
            yield mended.add(decoder.decode(part)).encode()
        yield (mended.add(decoder.decode(b"", final=True)) + mended.rest()).encode()

    async def aclose(self) -> None:
        await self._body.aclose()


def _is_end(error: MCPError) -> bool:
    # Servers use the library's code for failures of their own.
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _fault_of(error: BaseException) -> ToolFault:
    """Return what a failure means; the texts of libraries may hold addresses with keys."""
    for cause in _causes(error):
        match cause:
            case ToolFault():
                return cause
            case HostRefused():
                return ToolFault(REFUSED)
            case UnusableProxy():
                return ToolFault(str(cause))
            case httpx2.HTTPStatusError(response=response):
                return ToolFault(f"{NOT_ONE} ({response.status_code})")
            case TimeoutError() | httpx2.TimeoutException():
                return ToolFault(NO_ANSWER)
            case httpx2.ConnectError():
                return ToolFault(UNREACHABLE)
    return ToolFault(NOT_ONE if not isinstance(error, MCPError) or not _is_end(error) else ENDED)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    elif error is not None:
        yield error
        yield from _causes(error.__cause__ or error.__context__)
