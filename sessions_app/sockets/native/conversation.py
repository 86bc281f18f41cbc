"""The native socket of one conversation: join, frames in, frames out (docs/protocol.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from asgiref.typing import WebSocketScope

from conversations.cursors import EventCursor, InvalidCursor
from conversations.engines import failures
from conversations.events import Appended, EventEnvelope, NewEvent
from conversations.exceptions import (
    ConversationError,
    ConversationNotFound,
    InvalidConversationId,
    QuotaExceeded,
)
from conversations.models import ConversationRef, Version
from conversations.outages import Outage
from conversations.store import creation
from sessions_app import astore
from sessions_app.capacity import parsing
from sessions_app.capacity.append_queue import FrameOrder, is_for_now
from sessions_app.capacity.openings import opening
from sessions_app.identity import scopes
from sessions_app.identity.principals import BAD_REQUEST, NOT_FOUND, TOO_MUCH, TOO_SLOW, Principal, Refused
from sessions_app.identity.scopes import FRAME_SCOPES
from sessions_app.live import marks, presence
from sessions_app.live.feed import Feed
from sessions_app.live.hub import hub
from sessions_app.live.status import ConversationState, state_of
from sessions_app.live.text_frames import in_chunks
from sessions_app.loops.commands import CommandPending
from sessions_app.loops.manager import get_manager
from sessions_app.models import AllowedFor, UnknownAnswer, new_connection_id
from sessions_app.refusals import log_frame_refused
from sessions_app.sockets.arrivals import UNANSWERED_MAX, UNANSWERED_MAX_CHARACTERS
from sessions_app.sockets.handshake import authenticated, query_of, within_quotas
from sessions_app.sockets.native import frames
from sessions_app.sockets.native.frames import BadFrame, Frame
from sessions_app.sockets.native.reader import FrameReader
from sessions_app.sockets.socket import (
    TRY_AGAIN_LATER,
    Closed,
    Socket,
    SocketConsumer,
    SocketEnding,
    ended,
)

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_failing_frames = Outage(__name__, "A frame failed")

STORING = frozenset({"message", "event", "events"})
"""The frames that are stored in their order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationQuery:
    after: EventCursor
    version: Version
    session: str | None
    follow: bool
    payload: bool

    @classmethod
    def read(cls, scope: WebSocketScope) -> Self:
        given = query_of(scope)
        session = given.get("session")
        try:
            after = EventCursor.decode(given.get("after", "-1"))
        except InvalidCursor as error:
            raise Refused(
                BAD_REQUEST, "`after` is the `cursor` or the `seq` of an event; -1 for none."
            ) from error
        if given.get("version", "V0") not in Version.values:
            raise Refused(BAD_REQUEST, "`version` is V0 or V1.")
        if session is not None and not 0 < len(session) <= frames.SESSION_MAX_LENGTH:
            raise Refused(BAD_REQUEST, f"`session` has 1 to {frames.SESSION_MAX_LENGTH} characters.")
        for name in ("follow", "payload"):
            if given.get(name, "true") not in ("true", "false"):
                raise Refused(BAD_REQUEST, f"`{name}` is true or false.")
        return cls(
            after=after,
            version=Version(given.get("version", "V0")),
            session=session,
            follow=given.get("follow") != "false",
            payload=given.get("payload") != "false",
        )


class ConversationConsumer(SocketConsumer):
    async def serve(self, socket: Socket) -> None:
        await socket.accept()
        async with ended(SocketEnding(socket)):
            query = ConversationQuery.read(socket.scope)
            principal = await authenticated(socket)
            principal.require_reading()
            async with within_quotas(socket, principal), AsyncExitStack() as slot:
                await slot.enter_async_context(opening(principal.user_pk))
                conversation = await _joined(principal, socket.scope, query)
                await ConversationSocket(socket, principal, conversation, query, slot).serve()


async def _joined(principal: Principal, scope: WebSocketScope, query: ConversationQuery) -> ConversationRef:
    conversation_id: str = scope["url_route"]["kwargs"]["conversation_id"]  # type: ignore[typeddict-item]
    try:
        return await astore.call(creation.join, principal.user, conversation_id, version=query.version)
    except InvalidConversationId as error:
        raise Refused(BAD_REQUEST, str(error)) from error
    except ConversationNotFound as error:
        raise Refused(NOT_FOUND, str(error)) from error


class _Pending(NamedTuple):
    """A frame that waits for its answer."""

    frame_id: Any
    stored: asyncio.Future[list[Appended]]
    is_batch: bool
    characters: int


class ConversationSocket(FrameReader, SocketEnding):
    """One client on one conversation; a Reader of its feed."""

    def __init__(
        self,
        socket: Socket,
        principal: Principal,
        conversation: ConversationRef,
        query: ConversationQuery,
        slot: AsyncExitStack,
    ) -> None:
        self._connection_id = new_connection_id()
        session = query.session or self._connection_id
        FrameReader.__init__(
            self, principal, conversation, after=query.after.seq, payload=query.payload, session=session
        )
        SocketEnding.__init__(self, socket)
        self._user = principal.user
        self._query = query
        self._opening_slot = slot
        self._manager = get_manager()
        self._pending: asyncio.Queue[_Pending] = asyncio.Queue(UNANSWERED_MAX)
        self._order = FrameOrder()
        self._unanswered_characters = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._handlers: dict[str, Callable[[Frame], Awaitable[None]]] = {
            "message": self._message,
            "event": self._event,
            "events": self._events,
            "run": self._run,
            "pause": self._pause,
            "stop": self._stop,
            "confirm": self._confirm,
            "seen": self._seen,
            "auth": lambda frame: self._ack(frame.id),  # it is authenticated already
        }

    async def serve(self) -> None:
        await self._manager.ensure_started()
        connected = presence.connected(self._connection_id, self._conversation, self._user_pk, door=self.door)
        async with ended(self), connected:
            await self._run_tasks()

    async def end_slow(self, error: Exception) -> None:
        """Close with the seq to resume from."""
        await self._socket.close(TOO_SLOW, f"You did not read; resume from {self._shown_through}")

    async def end_failed(self, error: Exception) -> None:
        """Report a failure of the database in a frame `error`, and close."""
        if not isinstance(error, failures.FAILURES):
            await super().end_failed(error)
            return
        detail = failures.sentence(error)
        logger.error("A socket of conversation %s ends: %s", self._conversation.public_id, detail)
        with suppress(Closed, TimeoutError):
            await self._send(type="error", code="unavailable", detail=detail, id=None)
        await self._socket.close(TRY_AGAIN_LATER, f"Not available now; resume from {self._shown_through}")

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._show())
            tasks.create_task(self._answer())
            tasks.create_task(self._heartbeat())
            tasks.create_task(self._take())

    # Out

    async def _show(self) -> None:
        if self._query.follow:
            await Feed(self._conversation, self, after=self._query.after).run()
        else:
            await self.show_hello(await astore.call(state_of, self._conversation))

    async def show_hello(self, state: ConversationState) -> None:
        await super().show_hello(state)
        await self._opening_slot.aclose()  # the user's next socket may open

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        for chunk in in_chunks(events):
            await self._socket.send_frames([self._framed(event) for event in chunk])
            self._shown_through = chunk[-1]["seq"]

    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        if self._unanswered_characters:
            return False
        wire, write = self._event_frames
        frames_of_all = hub().recent.framed_together(wire, self._conversation, events, write)
        if not self._socket.send_at_once(frames_of_all):
            return False
        self._shown_through = events[-1]["seq"]
        return True

    def _framed(self, event: EventEnvelope) -> bytes:
        wire, write = self._event_frames
        return hub().recent.framed(wire, self._conversation, event, write)

    async def _send_text(self, text: str) -> None:
        await self._socket.send_text(text)

    # In

    async def _take(self) -> None:
        """Read frame after frame; their appends are committed while the next ones arrive."""
        await self._greeted.wait()  # `hello` is the first frame, however early a client sends
        while True:
            text = await self._socket.receive_text()
            self._order.take()
            frame_id, stores = None, True  # a frame that cannot be read may be one that is stored
            try:
                frame = await frames.taken(self._user_pk, text)
                frame_id, stores = frame.id, frame.type in STORING
                await self._principal.require_access()
                if frame.type in FRAME_SCOPES:
                    self._principal.require(FRAME_SCOPES[frame.type])
                if (handler := self._handlers.get(frame.type)) is None:
                    there = ", ".join(self._handlers)
                    raise BadFrame(f"There is no frame {frame.type!r}; there are {there}.")
                await handler(frame)
            except (Closed, Refused, TimeoutError):
                raise
            except Exception as error:
                if not isinstance(error, ConversationError):
                    _failing_frames.failed(error, conversation=self._conversation.public_id)
                if stores and is_for_now(error):
                    await self._fail_in_order(error, frame_id)
                elif isinstance(error, ConversationError):
                    await self._refuse(error, frame_id)
                else:
                    await self._send(**frames.unavailable_frame(error, frame_id))

    async def _fail_in_order(self, error: Exception, frame_id: Any) -> None:
        """Refuse a frame for now, and the frames that its sender sends before it knows."""
        self._order.note(error)
        failed: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        await self._pending.put(_Pending(frame_id, failed, False, 0))

    async def _message(self, frame: Frame) -> None:
        event = await self._read(
            frame, frames.message_event, self._conversation, user_id=self._user_pk, session=self._session
        )
        await astore.room(self._conversation)
        stored = self._manager.take_message_soon(self._conversation, event, order=self._order)
        await self._expect(frame, stored, [event])

    async def _event(self, frame: Frame) -> None:
        event = await self._read(frame, frames.recorded_event, sender_id=self._user_pk)
        await astore.room(self._conversation)
        stored = astore.append_soon(self._conversation, [event], order=self._order)
        await self._expect(frame, stored, [event])

    async def _events(self, frame: Frame) -> None:
        events = await self._read(frame, frames.recorded_events, sender_id=self._user_pk)
        await astore.room(self._conversation)
        stored = astore.append_soon(self._conversation, events, order=self._order)
        await self._expect(frame, stored, events)

    async def _read(
        self, frame: Frame, read: Callable[Concatenate[Frame, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Parse a frame's content; a large one off the event loop."""
        found = await parsing.in_turn(self._user_pk, frame.is_light, read, frame, *args, **kwargs)
        if not frame.is_light:  # parsing it may have taken long
            await self._principal.require_access()
        return found

    async def _expect(
        self, frame: Frame, stored: asyncio.Future[list[Appended]], events: Sequence[NewEvent]
    ) -> None:
        """Queue the frame for its answer; return once the next one may be read."""
        characters = sum(len(event.payload) for event in events)
        self._unanswered_characters += characters
        if self._unanswered_characters >= UNANSWERED_MAX_CHARACTERS:
            self._has_room.clear()
        await self._pending.put(_Pending(frame.id, stored, frame.type == "events", characters))
        await self._has_room.wait()

    async def _answer(self) -> None:
        """Send the acknowledgements in the order of the frames."""
        while True:
            frame_id, stored, is_batch, characters = await self._pending.get()
            try:
                # Shielded: a client that leaves must not cancel the append before its commit.
                appended = await asyncio.shield(stored)
            except QuotaExceeded as error:  # all earlier frames have their answers by now
                await self._refuse(error, frame_id)
                raise Refused(TOO_MUCH, str(error)) from error
            except ConversationError as error:
                await self._refuse(error, frame_id)
            except Exception as error:  # the append has logged it
                await self._send(**frames.unavailable_frame(error, frame_id))
            else:
                seqs = [each.seq for each in appended]
                if frame_id is not None:
                    await self._ack(frame_id, **({"seqs": seqs} if is_batch else {"seq": seqs[0]}))
            if self._pending.empty():  # all refusals are sent, so what follows may be sent knowing them
                self._order.told()
            self._unanswered_characters -= characters
            if self._unanswered_characters < UNANSWERED_MAX_CHARACTERS:
                self._has_room.set()

    async def _refuse(self, error: ConversationError, frame_id: Any) -> None:
        log_frame_refused("native", self._conversation, error, user=self._user_pk)
        await self._send(**frames.error_frame(error, frame_id))

    async def _ack(self, frame_id: Any, **members: Any) -> None:
        if frame_id is not None:
            await self._send(type="ack", id=frame_id, **members)

    async def _run(self, frame: Frame) -> None:
        await self._steer(frame, self._manager.run(self._conversation))

    async def _pause(self, frame: Frame) -> None:
        await self._steer(frame, self._manager.pause(self._conversation))

    async def _stop(self, frame: Frame) -> None:
        await self._steer(frame, self._manager.close_session(self._conversation.public_id))

    async def _steer(self, frame: Frame, steering: Awaitable[None]) -> None:
        """Steer the agent; a stored but pending request is acknowledged with its status."""
        try:
            await steering
        except CommandPending as pending:
            await self._ack(frame.id, status=pending.state)
        else:
            await self._ack(frame.id)

    async def _confirm(self, frame: Frame) -> None:
        outcome, reason = frames.told_outcome(frame), frame.text("reason", default="")
        always = frames.allowed_for(frame)
        if always is AllowedFor.USER:
            scopes.require_user_wide(self._user)
        decided: dict[str, Any] = {
            "always": always,
            "call_seq": frames.decided_call(frame),
            "event_id": frames.decision_id(frame, user_id=self._user_pk, session=self._session),
        }
        if outcome is None:
            decided |= {"accept": frame.flag("accept"), "reason": reason}
        else:
            accept = outcome is not UnknownAnswer.SKIP
            decided |= {"accept": accept, "reason": frame.text("text", default=reason), "outcome": outcome}
        await self._manager.confirm(self._conversation, **decided)
        await self._ack(frame.id)

    async def _seen(self, frame: Frame) -> None:
        await astore.change(marks.mark_seen, self._user_pk, self._conversation, frame.number("through"))
        await self._ack(frame.id)
