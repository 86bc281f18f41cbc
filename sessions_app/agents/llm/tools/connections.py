"""Connections to tool servers, each with a task that opens and closes it.

Imported late (`library`): the library of the protocol takes half a second.
"""

from __future__ import annotations

import asyncio
import codecs
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Unpack, cast

import anyio
import httpx2
import structlog
from mcp import ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, Implementation

from conversations.dialects import columns
from conversations.payloads import halves
from sessions_app.agents.base import ProgressReport
from sessions_app.agents.llm import transport
from sessions_app.agents.llm.faults import CallLate, ToolFault, causes
from sessions_app.agents.llm.tools.programs.program import ToolProgram
from sessions_app.agents.llm.tools.servers import CALL_MAX_S, ToolServer, ToolTransport
from sessions_app.event_loops import uncancelled
from sessions_app.outbound.hosts import HostRefused
from sessions_app.outbound.proxies import UnusableProxy

logger = structlog.stdlib.get_logger(__name__)

CONNECT_S = 30.0  # some commands download their program first
PAGES_MAX = 20
PROGRESS_MAX_CHARS = 500
KEY_META = "convserver/idempotency-key"
"""The member of `_meta` by which a server can recognise a repeated call."""
ENDED = "it has ended, or closed the connection"
NO_ANSWER = "it didn't answer in time"
UNREACHABLE = "it can't be reached"
REFUSED = "no public address was found for its host"
UNAUTHORIZED = "it rejected the key"
NOT_ONE = "what answers at its address is no tool server"
NO_SERVER = "it is no tool server"
UNREADABLE = "it sent an answer that can't be read"
NO_TOOLS = "its list of tools can't be read"
_JSON_TYPES = ("application/json", "text/event-stream")

UNKNOWN_VERSION = "it speaks a version of the protocol that this server doesn't know"
NO_GREETING = "its answer to the greeting can't be read"
# Successive calls without an answer in time: after these the server is ended, since it may be stuck.
TIMEOUTS_MAX = 2


class ToolConnection:
    """A connection to one tool server, for one event loop."""

    def __init__(self, server: ToolServer) -> None:
        self.server = server
        self._scope = anyio.CancelScope()
        self._session: asyncio.Future[_Session] = asyncio.get_running_loop().create_future()
        self._program: ToolProgram | None = None
        self._fault: ToolFault | None = None
        self._timeouts = 0
        """Successive calls without an answer in time."""
        self._keeping = asyncio.create_task(self._keep())

    async def tools(self) -> list[object]:
        """Connect, and return the entries of the server's list of tools. Raise ToolFault."""
        tools: list[object] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        try:
            async with asyncio.timeout(CONNECT_S):
                for _ in range(PAGES_MAX):
                    page = await self._asked("tools/list", params)
                    found, cursor = page.get("tools"), page.get("nextCursor")
                    if not isinstance(found, list):
                        raise ToolFault(NO_TOOLS)
                    tools += found
                    if not isinstance(cursor, str) or not cursor or cursor in cursors:
                        break  # the end, or a list that begins anew
                    cursors.add(cursor)
                    params = {"cursor": cursor}
        except TimeoutError:
            raise self._explained(ToolFault(NO_ANSWER)) from None
        except MCPError as error:
            raise ToolFault(NO_TOOLS) from error
        return tools

    async def call(
        self, name: str, arguments: Mapping[str, Any], key: str, *, report: ProgressReport
    ) -> Mapping[str, Any]:
        """Call a tool. Raise ToolFault if its outcome is unknown, and MCPError if it was refused.

        A cancelled or late call is reported to the server. Each progress report starts the call's time
        anew, up to CALL_MAX_S in all.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + CALL_MAX_S

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if not is_over:
                limit.reschedule(min(loop.time() + self.server.call_s, ends_at))
                text = columns.clean((message or "")[:PROGRESS_MAX_CHARS])
                await report(text, done=_finite(progress), total=_finite(total))

        is_over = False
        params = {"name": name, "arguments": dict(arguments), "_meta": {KEY_META: key}}
        await self._connected()
        try:
            async with asyncio.timeout(self.server.call_s) as limit:
                try:
                    result = await self._asked("tools/call", params, on_progress=hear)
                finally:
                    is_over = True
        except TimeoutError:
            self._timeouts += 1
            late = CallLate(f"{NO_ANSWER} ({self.server.call_s:g} seconds)")
            raise self._explained(late) from None
        self._timeouts = 0
        return result

    @property
    def is_stuck(self) -> bool:
        """Return whether too many successive calls had no result in time."""
        return self._timeouts >= TIMEOUTS_MAX

    def _explained(self, fault: ToolFault) -> ToolFault:
        return fault if self._program is None else self._program.explained(fault)

    @property
    def is_open(self) -> bool:
        """Return whether it is connected or connecting."""
        return not self._keeping.done() and self._fault is None and not self._scope.cancel_called

    async def close(self) -> None:
        """Close it, and end its program; a cancellation takes effect after that."""
        self._scope.cancel()
        await uncancelled(asyncio.wait({self._keeping}))

    async def _connected(self) -> _Session:
        try:
            # Other calls wait for the same session, so that this one must not cancel it.
            return await asyncio.wait_for(asyncio.shield(self._session), CONNECT_S)
        except TimeoutError:
            raise self._explained(ToolFault(NO_ANSWER)) from None

    async def _asked(
        self, method: str, params: Mapping[str, Any], **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Return the server's unchecked result of a request."""
        # The library's own requests refuse a whole list for one tool, and run patterns of its schemas.
        session = await self._connected()
        try:
            if self._program is not None:
                self._program.expect()
            headers = {MCP_PROTOCOL_VERSION_HEADER: session.version}
            return await session.dispatcher.send_raw_request(method, params, {"headers": headers, **options})
        except MCPError as error:
            if self._fault is not None or not self.is_open or _is_end(error):
                raise (self._fault or ToolFault(ENDED)) from error
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError) as error:
            raise (self._fault or ToolFault(ENDED)) from error

    async def _hear(self, message: object) -> None:
        """Fail after an answer that the library cannot read."""
        # It does not tell whose answer it is: the call would wait for its whole time.
        if isinstance(message, Exception):
            self.fail(ToolFault(UNREADABLE))

    def fail(self, fault: ToolFault) -> None:
        """End it because of a fault, without waiting for its last answers."""
        self._fault = self._fault or fault
        if self._program is not None:
            self._program.has_failed = True
        self._scope.cancel()

    async def _keep(self) -> None:
        """Open the connection, and hold it until it is closed or broken."""
        try:
            with self._scope:
                async with self._streams() as (read, write):
                    dispatcher = JSONRPCDispatcher[TransportContext](read, write)
                    client = Implementation(name="convserver", version="1")
                    async with ClientSession(
                        dispatcher=dispatcher, client_info=client, message_handler=self._hear
                    ) as session:
                        await self._greet(session)
                        self._session.set_result(_Session(dispatcher, session.protocol_version or ""))
                        await anyio.sleep_forever()
        except Exception as error:  # the library raises anything after a server's nonsense
            self._fault = self._fault or self._explained(_fault_of(error, self.server.way))
            logger.info("A tool server failed", kind=type(error).__name__, error=str(self._fault))
        finally:
            if not self._session.done():
                self._session.set_exception(self._fault or ToolFault(ENDED))
                self._session.exception()  # no call may wait for it

    async def _greet(self, session: ClientSession) -> None:
        """Begin the session, and keep its fault before the streams fail, too. Raise ToolFault."""
        try:
            await session.initialize()
        except (RuntimeError, ValueError) as error:
            is_version = isinstance(error, RuntimeError)
            self._fault = self._fault or ToolFault(UNKNOWN_VERSION if is_version else NO_GREETING)
            raise self._fault from error

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        server = self.server
        if server.way is ToolTransport.PROGRAM:
            self._program = ToolProgram(server, self.fail)
            async with self._program.running() as streams:
                yield streams
        elif server.way is ToolTransport.SSE:
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
        """Return a client for this server alone. Raise UnusableProxy."""
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
        """Keep the reason of a refusal, which the library drops; mend the JSON of an answer."""
        if response.status_code in (401, 403):
            self._fault = self._fault or ToolFault(f"{UNAUTHORIZED} ({response.status_code})")
        is_json = response.headers.get("content-type", "").partition(";")[0].strip() in _JSON_TYPES
        if is_json and "content-encoding" not in response.headers:
            response.stream = _Mended(cast(httpx2.AsyncByteStream, response.stream))


class _Mended(httpx2.AsyncByteStream):
    """A body with JSON for the library, which refuses invalid UTF-8 and lone halves of characters."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder, mended = codecs.getincrementaldecoder("utf-8")(errors="replace"), halves.WholeJson()
        async for part in self._body:
            yield mended.add(decoder.decode(part)).encode()
        yield (mended.add(decoder.decode(b"", final=True)) + mended.rest()).encode()

    async def aclose(self) -> None:
        await self._body.aclose()


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has: the library passes on NaN and Infinity."""
    return value if value is not None and math.isfinite(value) else None


class _Session(NamedTuple):
    """A session that has begun."""

    dispatcher: JSONRPCDispatcher[TransportContext]
    version: str
    """The negotiated one of the protocol."""


def _is_end(error: MCPError) -> bool:
    # Servers use the library's code for failures of their own.
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _fault_of(error: BaseException, way: ToolTransport) -> ToolFault:
    """Return the fault of a failure, without the texts of libraries, which may have addresses with keys."""
    for cause in causes(error):
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
    if isinstance(error, MCPError) and _is_end(error):
        return ToolFault(ENDED)
    return ToolFault(NO_SERVER if way is ToolTransport.PROGRAM else NOT_ONE)
