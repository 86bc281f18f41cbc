"""The common part of the V1 sockets of a conversation: handshake, messages, checks, the end (spec V1 §3)."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar
from uuid import uuid4

from django.utils import timezone

from conversations.cursors import EventCursor
from conversations.dialects import v1
from conversations.engines import failures
from conversations.events import ConversationRef, Dialect, EventEnvelope
from conversations.exceptions import ConversationError, InvalidEvent, QuotaExceeded
from conversations.outages import Outage
from conversations.payloads import bounds, jsontext
from conversations.payloads.jsontext import InvalidJson
from sessions_app.capacity.openings import opening
from sessions_app.capacity.parsing import in_turn
from sessions_app.event_loops import uncancelled
from sessions_app.identity import known_sockets, open_sockets
from sessions_app.identity.principals import (
    CHECK_S,
    NOT_ALLOWED,
    NOT_AUTHENTICATED,
    NOT_FOUND,
    TOO_MUCH,
    TOO_SLOW,
    Principal,
    Refused,
)
from sessions_app.live import presence
from sessions_app.live.feed import Feed, Unshown
from sessions_app.live.hub import hub
from sessions_app.live.status import ConversationState
from sessions_app.loops.manager import get_manager
from sessions_app.models import Scope, new_connection_id
from sessions_app.openhands_v1 import input as v1_input
from sessions_app.refusals import log_frame_refused
from sessions_app.sockets.handshake import query_of
from sessions_app.sockets.socket import Closed, Socket, SocketConsumer, SocketEnding, ended
from sessions_app.sockets.v1.handshake import (
    FAILED,
    GONE,
    is_auth,
    principal_by_address,
    principal_by_frame,
    public_id_of,
    reached,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_failing_frames = Outage(__name__, "A frame failed")

# Clients never reconnect after 4001 and 4004, so no passing failure may use them (spec V1 §3.1).
CLOSE_CODES = {
    NOT_AUTHENTICATED: 4001,
    NOT_ALLOWED: 4001,
    NOT_FOUND: 4004,
    TOO_SLOW: 1013,
    TOO_MUCH: TOO_MUCH,
}
"""The close codes of this wire."""
SLOW = "You did not read"


class V1Ending(SocketEnding):
    """The end of a session on a V1 socket, with this wire's close codes."""

    async def end_refused(self, refusal: Refused) -> None:
        reason = FAILED if refusal.code == NOT_AUTHENTICATED else str(refusal)
        await self._socket.close(CLOSE_CODES[refusal.code], reason)


class V1Socket(V1Ending, Unshown, ABC):
    # Of other histories it shows nothing: only the sequenced socket takes a cursor, and its first frame has
    # the end of the log.
    door = "v1"

    def __init__(
        self, socket: Socket, principal: Principal, conversation: ConversationRef, *, is_modern: bool
    ) -> None:
        super().__init__(socket)
        self._principal = principal
        self._conversation = conversation
        # Whether its release knows errors and pieces of answers.
        self._is_modern = is_modern
        self._greeted = asyncio.Event()

    @classmethod
    @abstractmethod
    def asked(cls, query: Mapping[str, str]) -> Any:
        """Return the parameters of the address. Raise Refused for a wrong one."""

    @classmethod
    @abstractmethod
    async def made(
        cls,
        socket: Socket,
        principal: Principal,
        conversation: ConversationRef,
        asked: Any,
        *,
        by_frame: bool,
    ) -> Self:
        """Return the socket of an authenticated client."""

    @property
    @abstractmethod
    def _after(self) -> int:
        """The seq after which events are sent."""

    async def serve(self) -> None:
        await get_manager().ensure_started()
        user_pk = self._principal.user_pk
        connected = presence.connected(new_connection_id(), self._conversation, user_pk, door=self.door)
        async with ended(self), connected:
            await self._run_tasks()

    async def end_slow(self, error: Exception) -> None:
        await self._socket.close(CLOSE_CODES[TOO_SLOW], SLOW)

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for work in self._works():
                tasks.create_task(work)

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        return [
            Feed(self._conversation, self, after=EventCursor(self._after)).run(),
            self._take(),
            self._check(),
        ]

    # Out

    @abstractmethod
    async def show_hello(self, state: ConversationState) -> None:
        """Send the first frame."""

    @abstractmethod
    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        """Send a frame each."""

    @abstractmethod
    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        """Send a frame each if the client has room; return whether they were sent."""

    async def show_state(self, state: ConversationState) -> None:
        if state["deleted"]:
            raise Refused(NOT_FOUND, GONE)

    def _shown(self, event: EventEnvelope) -> str:
        """Return an event's V1 text; a translated one is cached for all readers."""
        public_id = self._conversation.public_id
        if event["dialect"] == Dialect.V1:  # no translation is needed
            return v1.shown(event, public_id)
        return hub().recent.shown(self._conversation, event, lambda: v1.shown(event, public_id))

    # In

    async def _take(self) -> None:
        await self._greeted.wait()  # the first frame comes first, however early a client sends
        while True:
            text = await self._socket.receive_text()
            try:
                async with self._socket.arrivals.in_order():
                    await self._take_frame(text)
            except QuotaExceeded as error:
                log_frame_refused("v1", self._conversation, error, user=self._principal.user_pk)
                await self._tell_refused(type(error).__name__, str(error))
                raise Refused(TOO_MUCH, str(error)) from error
            except ConversationError as error:
                log_frame_refused("v1", self._conversation, error, user=self._principal.user_pk)
                code = "ValidationError" if isinstance(error, InvalidEvent) else type(error).__name__
                refusal = (code, str(error))
            except Refused:
                raise
            except Exception as error:
                _failing_frames.failed(error, conversation=self._conversation.public_id)
                refusal = ("InternalServerError", failures.to_sender(error))
            else:
                continue
            await self._tell_refused(*refusal)

    async def _take_frame(self, text: str | None) -> None:
        frame = await self._parsed(text)
        await self._principal.require_access()  # access may have ended while a large frame was parsed
        if is_auth(frame):  # already authenticated; older clients know no such frame
            self._is_modern = True
            return
        self._principal.require(Scope.RUN)
        if "role" not in frame:  # a request has a default, a Message has none (spec V1 §4.4)
            raise InvalidEvent("A frame is a message, with the `role` user and its `content`, or auth.")
        if self._is_modern:  # a client without errors would not repeat the message
            self._socket.arrivals.require_order()
        sender_id = self._principal.user_pk
        # The message is stored and answered even if this client leaves.
        await uncancelled(v1_input.say(self._conversation, frame, sender_id=sender_id, run=True))

    async def _parsed(self, text: str | None) -> Mapping[str, Any]:
        if text is None:
            raise InvalidEvent("Frames are text, not binary.")
        return await in_turn(self._principal.user_pk, bounds.is_light(text), parsed, text)

    async def _tell_refused(self, code: str, detail: str) -> None:
        # Clients of releases that do not know errors send no frames.
        await self._socket.send_text(_error_text(code, detail))

    async def _check(self) -> None:
        while True:
            await self._principal.stay(CHECK_S)


class V1Consumer(SocketConsumer):
    """A V1 door: the common handshake of its sockets."""

    socket_class: type[V1Socket]

    async def serve(self, socket: Socket) -> None:
        query = query_of(socket.scope)
        try:
            public_id, asked = public_id_of(socket.scope), self.socket_class.asked(query)
            principal = await principal_by_address(socket.scope, query, public_id)
        except Refused:
            await socket.refuse()
            return
        except Exception as error:  # clients do not reconnect after a refused handshake
            await socket.accept()
            async with ended(V1Ending(socket)):
                raise error
            return
        await socket.accept()
        async with ended(V1Ending(socket)):
            await self._serve_accepted(socket, principal, public_id, asked)

    async def _serve_accepted(
        self, socket: Socket, principal: Principal | None, public_id: str, asked: Any
    ) -> None:
        """Serve an accepted client; an unknown one authenticates by its first frame."""
        by_frame = principal is None
        try:
            principal = principal or await principal_by_frame(socket, public_id)
            principal.require_reading()
            with open_sockets.counted(principal.user_pk):
                known_sockets.let_in(socket.scope)
                async with opening(principal.user_pk):
                    conversation = await reached(principal, public_id)
                    client = await self.socket_class.made(
                        socket, principal, conversation, asked, by_frame=by_frame
                    )
                await client.serve()
        except QuotaExceeded as error:
            if by_frame:  # older clients know no errors
                with suppress(Closed, TimeoutError):
                    await socket.send_text(_error_text(type(error).__name__, str(error)))
            raise Refused(TOO_MUCH, str(error)) from error


def _error_text(code: str, detail: str) -> str:
    error = v1.server_error(code=code, detail=detail)
    return v1.written(error, event_id=str(uuid4()), timestamp=v1.stamp(timezone.now()))


def parsed(text: str) -> Mapping[str, Any]:
    """Return a client's frame. Raise InvalidEvent, for a large one before it is decoded."""
    try:
        bounds.require_bounded(text)
    except InvalidJson as error:
        raise InvalidEvent(f"The frame can't be read: {error}.") from error
    try:
        frame = json.loads(text, parse_int=jsontext.integer)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent("A frame is JSON.") from error
    if not isinstance(frame, dict):
        raise InvalidEvent("A frame is a JSON object.")
    return frame
