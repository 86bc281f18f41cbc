"""A reader of a conversation's feed that sends frames of the native wire, over any transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from conversations.events import ConversationRef, EventEnvelope
from conversations.exceptions import OtherHistory
from sessions_app import astore
from sessions_app.identity.principals import NOT_FOUND, Principal, Refused
from sessions_app.live import marks
from sessions_app.live.status import ConversationState
from sessions_app.sockets.native import frames

HEARTBEAT_S = 20.0

SHOWN_CHANGES = (
    "title",
    "version",
    "repository",
    "branch",
    "trigger",
    "pr_number",
    "tags",
    "loop",
    "deleted",
    "damage",
)
"""The keys of a `conversation` frame; the log itself reports everything else."""


class FrameReader:
    """A Reader of a feed; a subclass sends its frames."""

    door = "native"

    def __init__(
        self,
        principal: Principal,
        conversation: ConversationRef,
        *,
        after: int,
        payload: bool,
        session: str = "",
    ) -> None:
        """`after` is the seq of the client's last event; `payload` whether events contain payloads."""
        self._principal = principal
        self._user_pk = principal.user_pk
        self._conversation = conversation
        self._has_payloads = payload
        self._session = session
        self._state: dict[str, Any] = {}
        self._shown_through = after
        self._greeted = asyncio.Event()

    async def _send_text(self, text: str) -> None:
        """Send a frame other than an `event`; return when the client has room for the next one."""
        raise NotImplementedError

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        raise NotImplementedError

    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        return False

    async def show_hello(self, state: ConversationState) -> None:
        self._state = {name: state[name] for name in SHOWN_CHANGES}  # type: ignore[literal-required]
        # `hello` has its own members for two of these; a deleted conversation cannot be joined.
        shown = {name: value for name, value in state.items() if name not in ("last_seq", "loop", "deleted")}
        seen_through = await astore.call(marks.seen_through, self._user_pk, self._conversation)
        await self._send(
            type="hello",
            conversation=shown,
            last_seq=state["last_seq"],
            loop=state["loop"],
            **({"session": self._session} if self._session else {}),
            seen_through=seen_through,
        )
        self._greeted.set()

    @property
    def _event_frames(self) -> tuple[str, Callable[[EventEnvelope], str]]:
        """Return the name under which readers share frames of events, and the function that writes one."""
        if self._has_payloads:
            return "native", frames.envelope_json
        return "native without payload", frames.envelope_json_without_payload

    async def show_replay_complete(self, through: int) -> None:
        await self._send(type="replay_complete", through=through)

    async def show_delta(self, *, turn: str, answer: str, index: int, text: str, reasoning: str) -> None:
        more = {"reasoning": reasoning} if reasoning else {}
        await self._send(type="delta", turn=turn, answer=answer, index=index, text=text, **more)

    async def show_answer(self, *, turn: str, answer: str, through: int, text: str, reasoning: str) -> None:
        more = {"reasoning": reasoning} if reasoning else {}
        await self._send(type="answer", turn=turn, answer=answer, through=through, text=text, **more)

    async def show_progress(
        self, *, turn: str, call: str, text: str, done: float | None, total: float | None
    ) -> None:
        await self._send(type="progress", turn=turn, call=call, text=text, done=done, total=total)

    async def show_receipt(self, *, seqs: Sequence[int], seen_seq: int, turn: str) -> None:
        await self._send(type="receipt", seqs=seqs, seen_seq=seen_seq, turn=turn)

    async def show_state(self, state: ConversationState) -> None:
        """Send `conversation` with the changes; close the socket of a deleted conversation."""
        now = {name: state[name] for name in SHOWN_CHANGES}  # type: ignore[literal-required]
        changes = {name: value for name, value in now.items() if value != self._state[name]}
        self._state = now
        if changes:
            await self._send(type="conversation", changes=changes)
        if state["deleted"]:
            raise Refused(NOT_FOUND, "The conversation was deleted.")

    async def show_run(self) -> None:
        """Send nothing: the next states report the outcome."""

    async def show_other_history(self, error: OtherHistory) -> None:
        await self._send(**frames.error_frame(error))

    async def _heartbeat(self) -> None:
        await self._greeted.wait()
        while True:
            await self._principal.stay(HEARTBEAT_S)
            await self._send(type="heartbeat")

    async def _send(self, **frame: Any) -> None:
        await self._send_text(frames.frame_json(**frame))
