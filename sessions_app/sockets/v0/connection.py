"""One V0 client by Socket.IO: what it is shown of its conversation, and what it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import socketio

from conversations.cursors import EventCursor
from conversations.dialects import v0
from conversations.engines import failures
from conversations.events import ConversationRef, EventEnvelope, EventFilter
from conversations.exceptions import ConversationError, InvalidEvent
from conversations.log import reads
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.capacity.parsing import in_turn
from sessions_app.identity.principals import CHECK_S, NOT_FOUND, Principal, Refused
from sessions_app.live import presence
from sessions_app.live.feed import Feed, Unshown
from sessions_app.live.status import ConversationState
from sessions_app.live.text_frames import CHUNK_BYTES
from sessions_app.loops.manager import get_manager
from sessions_app.models import THERE, LoopEnd, LoopStatus, Scope, new_connection_id
from sessions_app.refusals import log_frame_refused
from sessions_app.sockets.arrivals import Arrivals
from sessions_app.sockets.socket import GRACE_S, SLOW_READER_S, ended
from sessions_app.sockets.v0.packets import Unread, event_of

_failing_events = Outage(__name__, "A V0 event failed")
_failing_sockets = Outage(__name__, "A V0 socket failed")

TOO_MANY = (
    "Too many conversations at once. If you are still using this one, try reactivating it by prompting the "
    "agent to continue"
)
_STATUS_FRAMES = {
    LoopStatus.STARTING: ("STATUS$STARTING_RUNTIME", "The agent is being started."),
    LoopStatus.RUNNING: ("STATUS$READY", "The agent is ready."),
}


class V0Connection(Unshown):
    # This wire shows whole messages, no progress of tools and no receipts; the next states report the outcome
    # of a run, and a client with a longer log lacks nothing (spec V0 §2.4).
    door = "v0"

    def __init__(
        self,
        server: socketio.AsyncServer,
        sid: str,
        transport_id: str,
        *,
        principal: Principal,
        arrivals: Arrivals,
        conversation: ConversationRef,
        after: int,
    ) -> None:
        self._server = server
        self._sid = sid
        self.transport_id = transport_id
        self._principal = principal
        self._arrivals = arrivals
        self._conversation = conversation
        self._after = after
        self._connection_id = new_connection_id()
        self._state: ConversationState | None = None
        # Of the agent's states, a replay shows only the newest: this one.
        self._newest_state = -1
        self._replay_through = -1
        self._was_there = False
        # Whether the manager knows the connection.
        self._has_joined = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Start sending in a task that `leave` ends; return the task."""
        self._task = asyncio.get_running_loop().create_task(self._serve())
        return self._task

    def leave(self) -> None:
        """End the task, unless it is the one that calls."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    # In

    async def take(self, event: object) -> dict[str, Any]:
        """Store what the client sent and do what it asks for; return the acknowledgement."""
        sender_id = self._principal.user_pk
        try:
            async with self._arrivals.in_order():
                seq = await self._take_one(event, sender_id)
        except ConversationError as error:
            log_frame_refused("v0", self._conversation, error, user=sender_id)
            return await self.refuse(str(error))
        except Refused as error:
            return await self.refuse(str(error))
        except Exception as error:
            _failing_events.failed(error, conversation=self._conversation.public_id)
            return await self.refuse(failures.to_sender(error))
        return {"success": True, "id": seq}

    async def _take_one(self, event: object, sender_id: int) -> int | None:
        if isinstance(event, Unread):
            event = await in_turn(sender_id, False, event_of, event.text)
        await self._principal.require_access()
        self._principal.require(Scope.RUN)
        if not isinstance(event, dict):
            raise InvalidEvent("An event is a JSON object with an `action` or an `observation`.")
        self._arrivals.require_order()
        return await self._pass_on(event, sender_id)

    async def _pass_on(self, event: dict[str, Any], sender_id: int) -> int | None:
        manager = get_manager()
        if self._has_joined:
            return await manager.send_to_event_stream(self._connection_id, event)
        # An event before hello does not wait for it: the failure that keeps hello back has to be answered.
        return await manager.send_event_to_conversation(self._conversation, event, sender_id=sender_id)

    async def refuse(self, words: str) -> dict[str, Any]:
        """Send the reason of a refusal; return the acknowledgement."""
        await self._send_status("error", "STATUS$ERROR", words)
        return {"success": False, "error": words}

    # Out

    async def _serve(self) -> None:
        user_pk = self._principal.user_pk
        connected = presence.connected(self._connection_id, self._conversation, user_pk, door=self.door)
        async with ended(self), connected:
            try:
                await self._run_tasks()
            finally:
                await get_manager().disconnect_from_session(self._connection_id)

    async def end_refused(self, refusal: Refused) -> None:
        """Disconnect the client once it has read what was sent; it does not reconnect."""
        with suppress(TimeoutError):
            await self._drained(GRACE_S)
        await self._server.disconnect(self._sid)

    async def end_slow(self, error: Exception) -> None:
        """End the transport; the client reconnects by itself."""
        await self._cut_off()

    async def end_failed(self, error: Exception) -> None:
        """Report the failure and end the transport; a disconnected client would not reconnect."""
        _failing_sockets.failed(error, conversation=self._conversation.public_id)
        is_told = isinstance(error, failures.FAILURES)
        words = failures.sentence(error) if is_told else "The server could not go on: connect again."
        with suppress(TimeoutError):
            await self._send_status("error", "STATUS$ERROR", words)
            await self._drained(GRACE_S)
        await self._cut_off()

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Feed(self._conversation, self, after=EventCursor(self._after)).run())
            tasks.create_task(self._check())

    async def _check(self) -> None:
        while True:
            await self._principal.stay(CHECK_S)

    async def _cut_off(self) -> None:
        """End the transport without a packet; the client reconnects by itself."""
        await close_transport(self._server, self.transport_id)

    async def show_hello(self, state: ConversationState) -> None:
        """Note the state and which of the agent's states a replay shows; join."""
        # Joined only now: the start of a loop is news if the state before it has been read.
        self._state = state
        if self._principal.may(Scope.RUN):
            user_id = str(self._principal.user_pk)
            await get_manager().join_conversation(self._conversation, self._connection_id, user_id)
            self._has_joined = True
        self._was_there = state["loop"]["status"] in THERE
        newest = await astore.call(
            reads.search_events,
            self._conversation,
            EventFilter(types=v0.STATE_TYPES),
            first=self._after + 1,
            last=state["last_seq"],
            newest_first=True,
            limit=1,
        )
        self._newest_state = newest.events[0]["seq"] if newest.events else -1
        self._replay_through = state["last_seq"]

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        undrained = 0
        for event in events:
            if self._is_outdated_state(event):
                continue
            if (text := v0.emitted(event)) is not None:
                await self._send(text)
                undrained += len(text)
            if undrained >= CHUNK_BYTES:  # the library's queue has no bound of its own
                await self._drained(SLOW_READER_S)
                undrained = 0
        await self._drained(SLOW_READER_S)

    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        # python-socketio sends in tasks of its own.
        return False

    def _is_outdated_state(self, event: EventEnvelope) -> bool:
        is_replayed = event["seq"] <= self._replay_through
        return is_replayed and event["type"] in v0.STATE_TYPES and event["seq"] != self._newest_state

    async def show_replay_complete(self, through: int) -> None:
        # This wire has no frame for the end of the replay.
        if self._state is not None and self._state["loop"]["status"] == LoopStatus.ERROR:
            await self._send_status("error", "STATUS$ERROR", self._state["loop"]["error"])

    async def show_state(self, state: ConversationState) -> None:
        """Send a new title and changes of the loop. Raise Refused when it was closed."""
        before, self._state = self._state, state
        if before is not None and state["title"] != before["title"]:
            await self._send_frame(
                status_update=True,
                type="info",
                message=self._conversation.public_id,
                conversation_title=state["title"],
            )
        if state["deleted"]:
            raise Refused(NOT_FOUND, "The conversation was deleted.")
        if before is not None and state["loop"]["status"] != before["loop"]["status"]:
            await self._show_loop(state)

    async def _show_loop(self, state: ConversationState) -> None:
        loop = state["loop"]
        if loop["status"] in THERE:
            self._was_there = True
            await self._send_status("info", *_STATUS_FRAMES[LoopStatus(loop["status"])])
        elif loop["status"] == LoopStatus.ERROR:
            await self._send_status("error", "STATUS$ERROR", loop["error"])
        # An interrupted loop is started again by a sweep; all other ends disconnect (spec V0 §2.9).
        elif self._was_there and loop["ended_by"] != LoopEnd.INTERRUPTED:
            if loop["ended_by"] == LoopEnd.EVICTED:
                await self._send_status("error", "AGENT_ERROR$TOO_MANY_CONVERSATIONS", TOO_MANY)
            extras = {"agent_state": "stopped", "reason": ""}
            closed = {"observation": "agent_state_changed", "message": "", "content": "", "extras": extras}
            await self._send(json.dumps(closed))
            raise Refused(NOT_FOUND, "The loop was closed.")

    async def _send_status(self, kind: str, status_id: str, message: str) -> None:
        await self._send_frame(status_update=True, type=kind, id=status_id, message=message)

    async def _send_frame(self, **members: Any) -> None:
        """Send what is no event."""
        # Web clients show nothing without a source and a time (spec V0 §2.7).
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        await self._send(json.dumps({**members, "source": "environment", "timestamp": now}))

    async def _send(self, text: str) -> None:
        """Send one frame: the JSON text of one object, unchanged."""
        # As a packet of the engine: the library's `emit` would encode the object anew. 2 is an event.
        await self._server.eio.send(self.transport_id, f'2["oh_event",{text}]')

    async def _drained(self, within_s: float) -> None:
        """Return once the transport has taken what was sent. Raise TimeoutError."""
        transport = self._server.eio.sockets.get(self.transport_id)
        if transport is not None:
            async with asyncio.timeout(within_s):
                await transport.queue.join()


async def close_transport(server: socketio.AsyncServer, transport_id: str) -> None:
    """End a transport without a packet; a repeat changes nothing."""
    transport = server.eio.sockets.get(transport_id)
    if transport is not None:
        await transport.close(wait=False, abort=True)
        await transport.queue.put(None)  # ends its writer, which waits for packets, and closes
