"""The V0 door by Socket.IO (spec V0 §2): who may join, and one server for each event loop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qs

import socketio
from asgiref.typing import ASGIReceiveCallable, ASGISendCallable
from channels.consumer import AsyncConsumer
from socketio.exceptions import ConnectionRefusedError

from conversations.events import ConversationRef
from conversations.exceptions import (
    ConversationError,
    ConversationNotFound,
    InvalidConversationId,
    QuotaExceeded,
)
from conversations.outages import Outage
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.chosen import conversation_needs_model
from sessions_app.capacity.openings import opening
from sessions_app.event_loops import PerEventLoop
from sessions_app.git_providers.base import ProviderType
from sessions_app.identity import known_sockets, open_sockets
from sessions_app.identity.key_holders import get_key_holders
from sessions_app.identity.principals import Principal, Refused
from sessions_app.loops.manager import get_manager
from sessions_app.refusals import log_request_refused, log_socket_refused
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import ModelKeyMissing, SettingsNotFound
from sessions_app.sockets.arrivals import Arrivals
from sessions_app.sockets.v0 import packets
from sessions_app.sockets.v0.connection import V0Connection, close_transport
from sessions_app.sockets.v0.openers import Opener

logger = logging.getLogger(__name__)

_failing_arrivals = Outage(
    __name__, "A Socket.IO client could not be let in", "Socket.IO clients are let in again"
)

PATH = "/socket.io"
JOIN_WAIT_S = 30.0
"""A transport without a join for this long is closed: it costs memory and a connection."""
JOIN_LOOK_S = 5.0

NOT_NOW = "The server could not do this now: try again."
JSONP_OFF = "JSONP is not served: poll by fetch or XMLHttpRequest, or connect by WebSocket."


class JoinRefusal(Exception):
    """The client may not join; it gets the message, and an id for its translation."""

    def __init__(self, message: str, msg_id: str | None = None) -> None:
        super().__init__(message)
        self.msg_id = msg_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Handshake:
    """The parameters of a connection's address."""

    conversation_id: str
    after: int

    @classmethod
    def read(cls, query_string: str) -> Self:
        """Read the parameters (spec V0 §2.2). Raise JoinRefusal."""
        query = parse_qs(query_string, keep_blank_values=True)
        conversation_id = query.get("conversation_id", [""])[0]
        if not conversation_id.strip():
            raise JoinRefusal("No conversation_id in query params")
        names = {name.strip() for value in query.get("providers_set", []) for name in value.split(",")} - {""}
        if unknown := names - set(ProviderType):
            raise JoinRefusal(f"Unknown git provider: {', '.join(sorted(unknown))[:100]}")
        return cls(conversation_id=conversation_id, after=_cursor(query.get("latest_event_id", [""])[0]))


def _cursor(text: str) -> int:
    """Return the id of the client's last event; -1 if the text is not an event id."""
    # A number of 19 digits may be beyond what a column of the database holds.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


class V0Server:
    def __init__(self) -> None:
        self.socketio = socketio.AsyncServer(
            async_mode="asgi",
            serializer=packets.V0Packet,
            # One after the other, so that a client's events stay in their order.
            async_handlers=False,
            # The outermost application has checked the origin already.
            cors_allowed_origins=lambda origin, environ: True,
            max_http_buffer_size=packets.MAX_PAYLOAD_BYTES,
            # The intervals of this wire (spec V0 §2.1).
            ping_interval=25,
            ping_timeout=20,
        )
        self._connections: dict[str, V0Connection] = {}
        self._joined: dict[str, str] = {}
        """The connection of each joined transport."""
        self._upgrading: dict[str, Any] = {}
        """The scope of each WebSocket to which a transport that has not joined upgrades."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of all connections, including those that tidy up after their client has left."""
        on: Callable[..., Any] = self.socketio.on
        on("connect", self._connect)
        on("disconnect", self._disconnect)
        for name in packets.TAKEN:
            on(name, self._take)
        on(packets.REFUSED, self._refuse)
        self._looking = asyncio.get_running_loop().create_task(self._close_unjoined())

    async def close(self) -> None:
        """End all connections; their clients reconnect by themselves."""
        self._looking.cancel()
        for connection in self._connections.values():
            connection.leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        await self.socketio.shutdown()

    async def _connect(self, sid: str, environ: Mapping[str, Any], auth: object = None) -> None:
        """Check everything, join, and start sending. Raise the refusal."""
        try:
            principal, conversation, after = await _arrived(environ)
        except JoinRefusal as refusal:
            log_socket_refused(environ["asgi.scope"], code=refusal.msg_id or "refused")
            data = {"msg_id": refusal.msg_id} if refusal.msg_id else None
            raise ConnectionRefusedError(str(refusal), *([data] if data else [])) from refusal
        except Exception as error:
            _failing_arrivals.failed(error)
            raise ConnectionRefusedError(NOT_NOW) from error
        _failing_arrivals.worked()
        transport_id = self.socketio.manager.eio_sid_from_sid(sid, "/")
        if not self._is_open(transport_id):  # it would never be reported as ended
            raise ConnectionRefusedError("This connection has ended.")
        try:
            end = open_sockets.begin(principal.user_pk)
        except QuotaExceeded as error:
            log_socket_refused(environ["asgi.scope"], code=error.code)
            raise ConnectionRefusedError(str(error)) from error
        connection = V0Connection(
            self.socketio,
            sid,
            transport_id,
            principal=principal,
            arrivals=Opener.of(environ).arrivals,
            conversation=conversation,
            after=after,
        )
        Opener.of(environ).principal = principal
        self._connections[sid] = connection
        self._joined[transport_id] = sid
        for scope in (environ["asgi.scope"], self._upgrading.get(transport_id, {})):
            known_sockets.let_in(scope)
        # No await from here on: the task begins after the CONNECT packet is on its way.
        task = connection.begin()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: end())

    async def _close_unjoined(self) -> None:
        """Close transports whose clients do not join, or were disconnected."""
        now = asyncio.get_running_loop().time
        since: dict[str, float] = {}
        while True:
            await asyncio.sleep(JOIN_LOOK_S)
            transports = self.socketio.eio.sockets
            since = {each: since.get(each, now()) for each in transports if each not in self._joined}
            for transport_id in [each for each, moment in since.items() if now() - moment >= JOIN_WAIT_S]:
                await close_transport(self.socketio, transport_id)

    async def _disconnect(self, sid: str, reason: object = None) -> None:
        connection = self._connections.pop(sid, None)
        if connection is not None:
            connection.leave()
            if self._joined.get(connection.transport_id) == sid:
                del self._joined[connection.transport_id]

    async def _take(self, sid: str, event: object = None, *rest: object) -> dict[str, Any]:
        connection = self._connections.get(sid)
        if connection is None:
            return {"success": False, "error": "This connection has ended."}
        return await connection.take(event)

    async def _refuse(self, sid: str, reason: str) -> dict[str, Any]:
        connection = self._connections.get(sid)
        if connection is None:
            return {"success": False, "error": reason}
        return await connection.refuse(reason)

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        if (refusal := await self._refusal(scope)) is not None:
            await _refuse(scope, receive, send, refusal)
            return
        if not _transport_id_in(scope):
            opener, scope = Opener.note(scope)
            send = opener.giving_proof(scope, send)
        handle: Callable[..., Awaitable[Any]] = self.socketio.handle_request
        if scope["type"] == "websocket":
            with self._noted(scope):
                await handle(scope, packets.by_websocket(self._arrivals(scope).by(receive), send), send)
        elif scope["method"] != "POST":
            await handle(scope, receive, send)
        else:
            try:
                posted = await self._posted(scope, receive)
                with self._arrivals(scope).posted():
                    await handle(scope, posted, send)
                if (transport := self._transport(scope)) is not None and transport.closed:
                    # The client waits for its own poll before it leaves.
                    await close_transport(self.socketio, transport.sid)
            except packets.Malformed as error:
                await _answer_bad_request(send, f"Bad request: {error}")

    async def _refusal(self, scope: Any) -> str | None:
        """Return why a request is refused before it is read; None if it may pass."""
        if "j" in parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True):
            return JSONP_OFF
        if not _transport_id_in(scope) or scope.get("method") == "OPTIONS":  # preflights have no credentials
            return None
        try:
            is_own = await self.is_own(scope)
        except Exception as error:
            _failing_arrivals.failed(error)
            return NOT_NOW
        # One message, whether it is another client's connection or none.
        return None if is_own else f"Invalid session {_transport_id_in(scope)}"

    async def is_own(self, scope: Any) -> bool:
        """Return whether a request is from the client that opened its connection, which is open."""
        environ = self.socketio.environ.get(_transport_id_in(scope))
        return environ is not None and await Opener.of(environ).has_sent(scope)

    async def _posted(self, scope: Any, receive: Any) -> Any:
        """Return a `receive` of the posted packets; end the transport and raise Malformed at others."""
        try:
            receive_again = await packets.by_post(receive)
        except packets.Malformed:
            logger.info("A Socket.IO client posted an invalid packet. Its connection is closed.")
            if (transport := self._transport(scope)) is not None and not transport.closed:
                await transport.close(wait=False)
            raise
        if (transport := self._transport(scope)) is not None and transport.closed:
            raise packets.Malformed("this connection has ended")
        return receive_again

    @contextmanager
    def _noted(self, scope: Any) -> Iterator[None]:
        # A WebSocket may send once its client is known, which may have joined by polling.
        transport_id = _transport_id_in(scope)
        if self.knows(scope):
            known_sockets.let_in(scope)
        elif transport_id in self.socketio.eio.sockets:
            self._upgrading[transport_id] = scope
        try:
            yield
        finally:
            if self._upgrading.get(transport_id) is scope:
                del self._upgrading[transport_id]

    def _arrivals(self, scope: Any) -> Arrivals:
        """Return the arrivals of a request's connection; empty ones after its end."""
        if not _transport_id_in(scope):
            return Opener.of({"asgi.scope": scope}).arrivals
        environ = self.socketio.environ.get(_transport_id_in(scope))
        return Arrivals() if environ is None else Opener.of(environ).arrivals

    def knows(self, scope: Any) -> bool:
        return _transport_id_in(scope) in self._joined

    def _is_open(self, transport_id: str | None) -> bool:
        # The client may leave by another request while it joins.
        transport = self.socketio.eio.sockets.get(transport_id)
        return transport is not None and not transport.closed

    def _transport(self, scope: Any) -> Any:
        return self.socketio.eio.sockets.get(_transport_id_in(scope))


def _transport_id_in(scope: Any) -> str:
    """Return the id in the address of a request on an open transport; empty for a new one."""
    sid: str = parse_qs(scope["query_string"].decode("latin-1")).get("sid", [""])[0]
    return sid


async def _refuse(scope: Any, receive: Any, send: Any, reason: str) -> None:
    if scope["type"] == "websocket":
        log_socket_refused(scope, code=403)
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
    else:
        log_request_refused(scope, status=400, code="not_your_connection")
        await _answer_bad_request(send, json.dumps(reason))


async def _answer_bad_request(send: Any, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _arrived(environ: Mapping[str, Any]) -> tuple[Principal, ConversationRef, int]:
    """Return the client, its conversation and its cursor after all checks. Raise JoinRefusal."""
    handshake = Handshake.read(environ.get("QUERY_STRING", ""))
    principal = await _let_in(Opener.of(environ))
    async with opening(principal.user_pk):
        conversation = await _joined(principal, handshake.conversation_id)
    try:
        if await astore.call(conversation_needs_model, conversation):
            await astore.call(user_settings.require_model_key, conversation.owner_id)
    except SettingsNotFound as error:
        raise JoinRefusal("Settings not found", "CONFIGURATION$SETTINGS_NOT_FOUND") from error
    except ModelKeyMissing as error:
        words = "Error authenticating with the LLM provider. Please check your API key"
        raise JoinRefusal(words, "STATUS$ERROR_LLM_AUTHENTICATION") from error
    await get_manager().ensure_started()
    return principal, conversation, handshake.after


async def _let_in(opener: Opener) -> Principal:
    user = await get_key_holders().find(opener.credentials)
    if not user.is_authenticated:
        raise JoinRefusal("invalid_session_api_key")
    principal = Principal(user, opener.credentials)
    try:
        principal.require_reading()
    except Refused as error:
        raise JoinRefusal(str(error)) from error
    return principal


async def _joined(principal: Principal, conversation_id: str) -> ConversationRef:
    try:
        return await astore.call(creation.join, principal.user, conversation_id)
    except ConversationNotFound as error:
        raise JoinRefusal("Conversation not found.") from error
    except InvalidConversationId as error:
        raise JoinRefusal(str(error)) from error
    except ConversationError as error:
        raise JoinRefusal(f"Failed to join conversation: {error}") from error


_servers = PerEventLoop(V0Server)


def _server() -> V0Server:
    return _servers.get()


async def is_connected(scope: Any) -> bool:
    """Return whether a request comes from a Socket.IO client that has joined."""
    here = _server()
    return scope["path"].startswith(f"{PATH}/") and here.knows(scope) and await here.is_own(scope)


async def socketio_v0(scope: Any, receive: Any, send: Any) -> None:
    await _server().serve(scope, receive, send)


class SocketIOConsumer(AsyncConsumer):
    """The V0 door for WebSockets.

    python-socketio and its engine take over the whole connection: they accept it, upgrade to it from
    polling, ping, split and join packets, and call the V0Server for each event. So nothing is left for
    the dispatch of Channels, and polling requests reach the same server without a consumer
    (`convserver/asgi.py`).
    """

    async def __call__(self, scope: Any, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self.scope, self.base_send = scope, send
        await socketio_v0(scope, receive, send)


async def close() -> None:
    server = _servers.pop()
    if server is not None:
        await server.close()
