"""The sequenced socket of the V1 wire: every event once with its seq, from any seq on (spec V1 §3.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from conversations.cursors import EventCursor, InvalidCursor
from conversations.events import ConversationRef, EventEnvelope
from sessions_app.identity.principals import BAD_REQUEST, Principal, Refused
from sessions_app.live.hub import hub
from sessions_app.live.status import ConversationState
from sessions_app.live.text_frames import in_chunks
from sessions_app.sockets.socket import Socket
from sessions_app.sockets.v1.socket import V1Consumer, V1Socket

_AFTER_SEQ = "`after_seq` is the seq of the last event that you have, -1 for none."


class SessionSocket(V1Socket):
    def __init__(
        self, socket: Socket, principal: Principal, conversation: ConversationRef, after: int
    ) -> None:
        super().__init__(socket, principal, conversation, is_modern=True)
        self._after_seq = after

    @classmethod
    def asked(cls, query: Mapping[str, str]) -> int:
        try:
            after = EventCursor.decode(query.get("after_seq", "-1"))
        except InvalidCursor as error:
            raise Refused(BAD_REQUEST, _AFTER_SEQ) from error
        if after.fingerprint is not None:  # clients of this wire get no fingerprints
            raise Refused(BAD_REQUEST, _AFTER_SEQ)
        return after.seq

    @classmethod
    async def made(
        cls,
        socket: Socket,
        principal: Principal,
        conversation: ConversationRef,
        asked: Any,
        *,
        by_frame: bool,
    ) -> Self:
        return cls(socket, principal, conversation, asked)

    @property
    def _after(self) -> int:
        return self._after_seq

    async def show_hello(self, state: ConversationState) -> None:
        """Send which events are replayed: none if `from_seq` is greater than `through_seq`."""
        through = state["last_seq"]
        first = min(self._after_seq, through) + 1
        await self._socket.send_text(f'{{"kind":"Sync","from_seq":{first},"through_seq":{through}}}')
        self._greeted.set()

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        for chunk in in_chunks(events):
            await self._socket.send_frames([self._framed(event) for event in chunk])

    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        return self._socket.send_at_once(
            hub().recent.framed_together("v1 session", self._conversation, events, self._durable)
        )

    def _framed(self, event: EventEnvelope) -> bytes:
        return hub().recent.framed("v1 session", self._conversation, event, self._durable)

    def _durable(self, event: EventEnvelope) -> str:
        return f'{{"kind":"Durable","seq":{event["seq"]},"event":{self._shown(event)}}}'


class SessionConsumer(V1Consumer):
    socket_class = SessionSocket
