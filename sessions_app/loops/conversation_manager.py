"""ConversationManager (spec V0 §5.1), the interface that runs, finds and steers agent loops.

CONVSERVER_MANAGER chooses its class.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self
from uuid import uuid4

from django.utils.module_loading import import_string

from conversations import dialects
from conversations.dialects import v0
from conversations.events import Appended, Authored, ConversationRef, Dialect, Kind, NewEvent
from conversations.exceptions import ConversationError, LoopUnavailable
from conversations.payloads.bounds import is_light_value
from sessions_app import astore
from sessions_app.capacity.append_queue import FrameOrder
from sessions_app.capacity.parsing import in_turn
from sessions_app.loops import runs
from sessions_app.loops.inputs import while_working
from sessions_app.loops.loop import Loop
from sessions_app.loops.runs import TakenMessage
from sessions_app.models import AllowedFor, UnknownAnswer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentLoopInfo:
    conversation_id: str
    status: str
    runtime_status: str | None
    execution_status: str
    url: str | None = None
    session_api_key: str | None = None


class ConversationManager(ABC):
    """Starts, finds and stops the agent loops of conversations; used as an async context manager.

    Ids are public ids. A caller passes a conversation that it has found, after it has checked the
    permission.
    """

    @classmethod
    @abstractmethod
    def get_instance(cls, *given: Any) -> Any:
        """Return a manager for the running event loop; `given` is what OpenHands' server passes, and unread.

        Called on this class itself, it is the running manager in the form of that server (ManagerById).
        """
        # By its name: the modules of the running manager import this one.
        return import_string("sessions_app.loops.managers.by_id.running")()

    async def __aenter__(self) -> Self:
        await self.ensure_started()
        return self

    @abstractmethod
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End turns as interrupted, release all leases, close everything that was opened."""

    is_housekeeper: ClassVar[bool] = True
    """Whether its process does periodic work for the installation: webhooks, indexing, clean-up."""

    @abstractmethod
    async def ensure_started(self) -> None:
        """Start the manager's own tasks, once; doors call it, since not every server supports lifespans."""

    async def agent_attached(self, user_id: int, name: str, conversation: ConversationRef | None) -> None:
        """Start what waits for a remote agent's program that has just connected here.

        `conversation` is the only one that it serves, None if it serves all.
        """
        await self.ensure_started()  # its sweeps find the waiting work, too

    @abstractmethod
    async def attach_to_conversation(
        self, conversation_id: str, user_id: str | None = None
    ) -> ConversationRef | None:
        """Return the conversation without joining it; None if this user has none with this id."""

    @abstractmethod
    async def detach_from_conversation(self, conversation: ConversationRef) -> None:
        """Release an attached conversation."""

    @abstractmethod
    async def join_conversation(
        self,
        conversation: ConversationRef,
        connection_id: str,
        user_id: str,
        settings: Mapping[str, Any] | None = None,
    ) -> AgentLoopInfo:
        """Record the connection, and start the loop if there is none; does not wait for the start."""

    @abstractmethod
    async def is_agent_loop_running(self, conversation_id: str) -> bool:
        """Return whether the conversation has a loop."""

    @abstractmethod
    async def get_running_agent_loops(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> set[str]:
        """Return the ids of conversations with a loop; an empty filter means none."""

    @abstractmethod
    async def get_connections(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> dict[str, str]:
        """Return connection id → conversation id of those present; an empty filter means none."""

    @abstractmethod
    async def maybe_start_agent_loop(
        self,
        conversation: ConversationRef,
        settings: Mapping[str, Any] | None = None,
        initial_user_msg: NewEvent | None = None,
    ) -> AgentLoopInfo:
        """Start the loop if there is none; the message is stored only if it starts."""

    @abstractmethod
    async def send_to_event_stream(self, connection_id: str, data: Mapping[str, Any]) -> int | None:
        """Do what `send_event_to_conversation` does, as the user of a connection that has joined.

        Raise LoopUnavailable for an unknown connection.
        """

    @abstractmethod
    async def disconnect_from_session(self, connection_id: str) -> None:
        """Remove the connection; the loop continues."""

    @abstractmethod
    async def close_session(self, conversation_id: str) -> None:
        """Stop the loop and those of all conversations below it; their messages stay.

        Does nothing without a loop. Raise CommandPending if one has not ended within 8 s; it ends later.
        """

    @abstractmethod
    async def close_sub_conversations(self, conversation: ConversationRef) -> None:
        """Do what `close_session` does with all conversations below this one."""

    @abstractmethod
    def get_agent_session(self, conversation_id: str) -> Loop | None:
        """Return the loop if this process runs it."""

    @abstractmethod
    async def get_agent_loop_info(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> list[AgentLoopInfo]:
        """Return the status of the existing loops; an empty filter means none."""

    @abstractmethod
    async def request_llm_completion(
        self, conversation_id: str, service_id: str, llm_config: Any, messages: Sequence[Mapping[str, str]]
    ) -> str:
        """Ask the loop's agent outside the conversation. Raise LoopUnavailable if there is no loop."""

    @abstractmethod
    def start_soon(self, conversation: ConversationRef) -> None:
        """Start the loop if there is none, even without work for it; does not wait."""

    @abstractmethod
    def wake(self, conversation: ConversationRef) -> None:
        """Wake the agent to answer stored inputs, and start its loop if necessary; does not wait."""

    def take_message_soon(
        self, conversation: ConversationRef, message: NewEvent, *, order: FrameOrder | None = None
    ) -> asyncio.Future[list[Appended]]:
        """Queue a native client's message and return its future; it is answered even if the client leaves.

        The future raises AgentWorking if the agent works and refuses messages meanwhile.
        """
        refusal = partial(while_working.refusal, conversation)
        stored = astore.append_soon(conversation, [message], refusal=refusal, order=order)
        stored.add_done_callback(lambda _: self.wake(conversation))
        return stored

    async def send_event_to_conversation(
        self,
        conversation: ConversationRef | str,
        data: Mapping[str, Any],
        *,
        sender_id: int | None = None,
        event_id: str | None = None,
    ) -> int | None:
        """Store a V0 client's event and do what it asks for: answer, pause, continue, stop, decide.

        The conversation is one that the caller has found, or an id. Return the event's seq; None for a
        decision, whose event the server writes itself. A repeated `event_id` stores and does nothing
        again. Raise InvalidEvent, or LoopUnavailable for an unknown id, and for a decision if no call
        waits.
        """
        conversation = await self._found(conversation)
        is_light = is_light_value(data)
        authored = await in_turn(sender_id, is_light, v0.received, data)
        match _asked_state(data):
            case "user_confirmed":
                await self.confirm(conversation, accept=True, event_id=event_id)
            case "user_rejected":
                await self.confirm(conversation, accept=False, event_id=event_id)
            case state:
                read = partial(_new_event, sender_id=sender_id, event_id=event_id)
                new = await in_turn(sender_id, is_light, read, conversation, authored)
                await astore.room_soon(conversation)  # nothing is awaited between this and the append
                stored = astore.append_soon(conversation, [new])
                if new.is_input:  # it is answered even if the client leaves
                    stored.add_done_callback(lambda _: self.wake(conversation))
                (appended,) = await asyncio.shield(stored)  # it is stored even if the client leaves
                if appended.is_new:
                    await self._steer(conversation, state)
                return appended.seq
        return None

    async def _found(self, conversation: ConversationRef | str) -> ConversationRef:
        if not isinstance(conversation, str):
            return conversation
        found = await self.attach_to_conversation(conversation)
        if found is None:
            raise LoopUnavailable(f"no_conversation:{conversation}")
        return found

    async def _steer(self, conversation: ConversationRef, state: str | None) -> None:
        """Do what a stored state asks for; a failure is logged, since the state is stored anyway."""
        try:
            match state:
                case "stopped":
                    try:
                        await self.interrupt(conversation)
                    finally:
                        await self.close_sub_conversations(conversation)
                case "paused":
                    await self.pause(conversation)
                case "running":
                    await self.run(conversation)
        except ConversationError as error:
            logger.warning("Conversation %s cannot be %s: %s", conversation.public_id, state, error)
        except Exception:
            logger.exception("Conversation %s could not be steered", conversation.public_id)

    @abstractmethod
    async def run(self, conversation: ConversationRef) -> None:
        """Start the loop, or resume a paused one. Raise CommandPending like `pause`."""

    @abstractmethod
    async def ask_run(self, conversation: ConversationRef) -> bool:
        """Start a run that answers the whole log, or approve the call that waits (spec V1 §2.6).

        When this returns the conversation is `running`, or the run is already over. Return False if one
        was on. Raise CommandPending like `pause`.
        """

    async def reject(self, conversation: ConversationRef, reason: str = "") -> None:
        """Reject the calls that wait for approval, which on the V1 wire ends the turn.

        Raise LoopUnavailable if none waits.
        """
        reason = reason or runs.REJECTED_REASON
        if conversation.dialect is Dialect.V0:
            await self.confirm(conversation, accept=False, reason=reason)
        else:
            await astore.change(runs.reject, conversation, reason)
            self.wake(conversation)  # a later message may wait for an answer

    @abstractmethod
    async def take_input(
        self, conversation: ConversationRef, message: NewEvent, *, run: bool
    ) -> TakenMessage:
        """Store a V1 client's message; with `run`, request a run unless one is on (see `runs.take`)."""

    @abstractmethod
    async def pause(self, conversation: ConversationRef) -> None:
        """Pause after the current step; return once the loop, in any process, has the request.

        Raise CommandPending if it does not within 8 s; it pauses later.
        """

    @abstractmethod
    async def interrupt(self, conversation: ConversationRef) -> None:
        """Interrupt the agent's turn; its loop stays, and later messages are answered.

        Raise CommandPending like `pause`.
        """

    @abstractmethod
    async def confirm(
        self,
        conversation: ConversationRef,
        *,
        accept: bool,
        reason: str = "",
        call_seq: int | None = None,
        event_id: str | None = None,
        outcome: UnknownAnswer | None = None,
        always: AllowedFor | None = None,
    ) -> None:
        """Decide about the tool calls that wait; a repeated `event_id` decides about no others.

        `outcome` answers the question about a call of unknown outcome, and `reason` is the user's comment
        on it. With `always`, later calls of the approved tool run without approval. Raise LoopUnavailable
        if no call waits, if `call_seq` is given and another call waits, if `outcome` is given and no outcome
        is unknown, or if `always` is given and what waits cannot be allowed for later calls.
        """


def _asked_state(event: Mapping[str, Any]) -> str | None:
    """Return the state that a well-formed event asks the agent to enter, if any."""
    if event.get("action") != "change_agent_state":
        return None
    return str(event["args"]["agent_state"])


def _new_event(
    conversation: ConversationRef,
    authored: Authored,
    *,
    sender_id: int | None,
    event_id: str | None,
) -> NewEvent:
    """Return a client's event as an event of the conversation's own wire."""
    event_id = event_id or str(uuid4())
    is_input = authored.reading.kind is Kind.MESSAGE and authored.reading.type == "message"
    if is_input and conversation.dialect is not Dialect.V0:  # its agent and its readers know one wire
        args = json.loads(authored.payload)["args"]
        authored = dialects.author(conversation.dialect).user_message(
            text=args["content"], image_urls=args.get("image_urls") or (), event_id=event_id
        )
    return authored.event(event_id, sender_id=sender_id, is_input=is_input)
