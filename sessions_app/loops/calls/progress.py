"""How far a running tool call is, shown to readers."""

from __future__ import annotations

import time
from math import inf

from django.db import InterfaceError, OperationalError

from conversations import live
from conversations.events import ConversationRef
from conversations.exceptions import ConversationBusy
from conversations.payloads.halves import whole
from conversations.redaction import secrets
from sessions_app import astore
from sessions_app.agents.base import ToolCall

PROGRESS_S = 0.5
"""The least time between two reports that readers see."""


class ToolProgress:
    """The reports of one turn's calls; readers see some of them."""

    def __init__(self, conversation: ConversationRef, turn_id: str) -> None:
        self._conversation = conversation
        self._turn_id = turn_id
        self._call_id = ""
        self._shown_at = -inf

    async def show(self, call: ToolCall, text: str, *, done: float | None, total: float | None) -> None:
        """Show a report without the secrets of the conversation's owner; of a call one every PROGRESS_S."""
        now = time.monotonic()
        if call.event_id == self._call_id and now - self._shown_at < PROGRESS_S:
            return
        # Before the query: reports that come meanwhile are left out.
        self._call_id, self._shown_at = call.event_id, now
        pk = self._conversation.pk
        try:
            masks = await astore.call(secrets.masks_of, self._conversation.owner_id, pk)
        except (ConversationBusy, OperationalError, InterfaceError):
            return  # the next report says more
        progress = {"call": call.event_id, "text": masks.hide(whole(text)), "done": done, "total": total}
        live.announce(live.conversation_group(pk), {"kind": "progress", "turn": self._turn_id, **progress})
