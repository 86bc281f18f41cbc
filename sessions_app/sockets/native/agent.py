"""The native socket of a program that plays an agent's turns: turns out, steps in (docs/protocol.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from asgiref.typing import WebSocketScope

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError, ConversationNotFound
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.agents import registry
from sessions_app.agents.registry import AgentUnusable
from sessions_app.agents.remote import attachments
from sessions_app.agents.remote.attachments import ProgramAttachment
from sessions_app.agents.remote.names import NAME
from sessions_app.agents.remote.programs import Program, ProgramPlace, programs
from sessions_app.event_loops import uncancelled
from sessions_app.identity.principals import (
    BAD_REQUEST,
    NOT_ALLOWED,
    NOT_FOUND,
    SUPERSEDED,
    TOO_SLOW,
    Principal,
    Refused,
)
from sessions_app.live.hub import hub
from sessions_app.loops.manager import get_manager
from sessions_app.models import REMOTE_NAME_MAX_LENGTH
from sessions_app.processes import this_process
from sessions_app.sockets.handshake import authenticated, query_of, within_quotas
from sessions_app.sockets.native import agent_frames, frames
from sessions_app.sockets.native.frames import Frame, FrameTooLarge
from sessions_app.sockets.native.reader import HEARTBEAT_S
from sessions_app.sockets.socket import Socket, SocketConsumer, SocketEnding, ended

FRAME_MAX_CHARACTERS = 1024 * 1024
FRAMES_PER_S = 200
"""The long-term rate at which frames of one program are read."""
FRAMES_AT_ONCE = 2 * FRAMES_PER_S
"""At most this many frames are read at once."""
LINGER_S = 1.0
"""The time between a replaced program's last frame and its close."""
TAKEN_OVER = "Another program has connected under this name."

_failing_frames = Outage(__name__, "A frame of a program failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentQuery:
    name: str
    conversation: str | None

    @classmethod
    def read(cls, scope: WebSocketScope) -> Self:
        name: str = scope["url_route"]["kwargs"]["name"]  # type: ignore[typeddict-item]
        if not NAME.fullmatch(name):
            raise Refused(
                BAD_REQUEST,
                f"The name of an agent has 1 to {REMOTE_NAME_MAX_LENGTH} letters, digits, '_', '.' and '-'.",
            )
        return cls(name=name, conversation=query_of(scope).get("conversation"))


class AgentConsumer(SocketConsumer):
    async def serve(self, socket: Socket) -> None:
        await socket.accept()
        async with ended(SocketEnding(socket)):
            query = AgentQuery.read(socket.scope)
            principal = await authenticated(socket)
            principal.require_running(all_conversations=query.conversation is None)
            try:
                registry.require_remote()
            except AgentUnusable as error:
                raise Refused(NOT_ALLOWED, str(error)) from error
            async with within_quotas(socket, principal):
                conversation = await _reached(principal, query)
                await get_manager().ensure_started()
                await AgentSocket(socket, principal, query.name, conversation).serve()


async def _reached(principal: Principal, query: AgentQuery) -> ConversationRef | None:
    if query.conversation is None:
        return None
    try:
        return await astore.call(principal.reach, query.conversation)
    except ConversationNotFound as error:
        raise Refused(NOT_FOUND, str(error)) from error
    except ConversationError as error:
        raise Refused(BAD_REQUEST, str(error)) from error


class FramePace:
    """The rate of frames: a bucket that fills with time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = float(FRAMES_AT_ONCE)
        self._at = self._loop.time()

    async def keep(self) -> None:
        """Return once one more frame may be read."""
        now = self._loop.time()
        self._left = min(FRAMES_AT_ONCE, self._left + (now - self._at) * FRAMES_PER_S) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / FRAMES_PER_S)


class AgentSocket(SocketEnding):
    def __init__(
        self, socket: Socket, principal: Principal, name: str, conversation: ConversationRef | None
    ) -> None:
        super().__init__(socket)
        self._principal = principal
        self._user_pk = principal.user_pk
        self._name = name
        self._conversation = conversation
        key = None if conversation is None else conversation.pk
        self._program = Program(ProgramPlace(self._user_pk, name, key))
        self._pace = FramePace()

    async def serve(self) -> None:
        place = (self._user_pk, self._name, self._conversation)
        attachment = await uncancelled(astore.change(attachments.attach, *place, this_process()))
        try:
            shown = None if self._conversation is None else self._conversation.public_id
            # Queued before a turn can be: `hello` is the first frame.
            self._program.send(type="hello", agent=self._name, conversation=shown)
            programs().attach(self._program)
            async with ended(self), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send())
                tasks.create_task(self._take())
                tasks.create_task(self._heartbeat(attachment))
                tasks.create_task(self._watch(attachment))
                tasks.create_task(self._yield_place())
        finally:
            programs().detach(self._program)
            await uncancelled(astore.change(attachments.detach, attachment))

    async def end_slow(self, error: Exception) -> None:
        """Close; the turns go on with the next program."""
        await self._socket.close(TOO_SLOW, "You did not read; connect again.")

    # Out

    async def _send(self) -> None:
        while True:
            await self._socket.send_text(await self._program.next_frame())

    async def _heartbeat(self, attachment: ProgramAttachment) -> None:
        while True:
            await self._principal.stay(HEARTBEAT_S)
            self._program.send(type="heartbeat")
            await self._look(attachment)

    async def _watch(self, attachment: ProgramAttachment) -> None:
        # Another process may have a later program or a message for this one. If the hint is lost, a poll
        # finds the program, and the manager's sweep finds the message.
        async with hub().subscribe(attachment.group) as hints:
            await self._greet()
            while True:
                hint = await hints.next()
                if hint["kind"] == "wake":
                    await self._greet()
                else:
                    await self._look(attachment)

    async def _greet(self) -> None:
        await get_manager().agent_attached(self._user_pk, self._name, self._conversation)

    async def _look(self, attachment: ProgramAttachment) -> None:
        if not await astore.change(attachments.is_current, attachment):
            self._program.supersede()

    async def _yield_place(self) -> None:
        """Send a replaced program `fenced`, refuse its later frames, and close."""
        await self._program.is_superseded.wait()
        self._program.send(type="fenced", turn=None)
        # The task that sends frames ends with this one.
        await asyncio.sleep(LINGER_S)
        raise Refused(SUPERSEDED, TAKEN_OVER)

    # In

    async def _take(self) -> None:
        """Read frame after frame; steps of different turns run concurrently."""
        while True:
            await self._program.room()  # a full queue of steps stops reading only this program
            await self._pace.keep()
            text = await self._socket.receive_text()
            frame: Frame | None = None
            try:
                if text is not None and len(text) > FRAME_MAX_CHARACTERS:
                    most = f"at most {FRAME_MAX_CHARACTERS} characters here"
                    raise FrameTooLarge(f"The frame is too large: {most}.")
                frame = await frames.taken(self._user_pk, text)
                await self._principal.require_access()
                if frame.type == "auth":
                    self._acknowledge(frame)
                else:
                    await self._program.take(agent_frames.read(frame))
            except ConversationError as error:
                self._refuse(frames.error_frame(error), frame)
            except Refused:
                raise
            except Exception as error:
                _failing_frames.failed(error, user=self._user_pk)
                self._refuse(frames.unavailable_frame(error, None), frame)

    def _acknowledge(self, frame: Frame) -> None:
        if frame.id is not None:
            self._program.send(type="ack", turn=None, id=frame.id)

    def _refuse(self, error: Mapping[str, Any], frame: Frame | None) -> None:
        """Answer a frame with an error; None is a frame that could not be read."""
        turn = None if frame is None or "turn" not in frame.members else frame.members["turn"].value
        is_named = isinstance(turn, str) and len(turn) <= 100
        known = {"turn": turn if is_named else None, "id": None if frame is None else frame.id}
        self._program.send(**{**error, **known})
