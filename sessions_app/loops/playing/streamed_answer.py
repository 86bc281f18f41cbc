"""An answer while the agent writes it: readers get each piece, late readers a snapshot."""

from __future__ import annotations

import time
from math import inf
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction

from conversations import live
from conversations.events import ConversationRef
from conversations.exceptions import ConversationBusy
from conversations.payloads.halves import WholeText, whole
from conversations.redaction import secrets
from conversations.redaction.masking import Masks
from conversations.redaction.streams import MaskedStream
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.loops import leases
from sessions_app.models import AgentLoop, UnfinishedAnswer

logger = structlog.stdlib.get_logger(__name__)

SNAPSHOT_S = 0.25
"""A late reader misses at most this much of an unfinished answer until the next snapshot."""


class StreamedAnswer:
    """An unfinished answer: readers get each piece without its secrets, and late readers a snapshot."""

    def __init__(
        self, conversation: ConversationRef, turn_id: str, epoch: int, masks: Masks, *, event_id: str
    ) -> None:
        self.event_id = event_id
        self.text = ""
        self.reasoning = ""
        self._conversation = conversation
        self._turn_id = turn_id
        self._epoch = epoch
        self._masks = masks
        self._text, self._reasoning = MaskedStream(), MaskedStream()
        self._whole_text, self._whole_reasoning = WholeText(), WholeText()
        self._index = 0
        self._snapshot_at = -inf  # the first piece makes one, even just after the clock's start
        self._snapshot_through = -1

    async def write(self, text: str) -> None:
        text = self._whole_text.add(text)
        self.text += text
        self._text.add(text)
        self._announce(text=self._text.take(self._masks))
        # Without a shown piece, such as while a secret may still go on, there is nothing to store.
        if self._index and time.monotonic() - self._snapshot_at >= SNAPSHOT_S:
            await self.snapshot()

    def think(self, text: str) -> None:
        """Add a piece of the reasoning; the next snapshot, made by `write`, has it."""
        text = self._whole_reasoning.add(text)
        self.reasoning += text
        self._reasoning.add(text)
        self._announce(reasoning=self._reasoning.take(self._masks))

    def replace(self, text: str) -> None:
        self.text = whole(text)
        self._whole_text = WholeText()

    def end(self) -> None:
        """Add the half of a character that is kept for the next piece: none follows."""
        text, reasoning = self._whole_text.rest(), self._whole_reasoning.rest()
        self.text += text
        self.reasoning += reasoning
        self._text.add(text)
        self._reasoning.add(reasoning)

    async def break_off(self) -> None:
        """Show and store everything, as nothing follows. Raise Fenced if another loop has taken over."""
        self.end()
        reasoning = self._reasoning.take_rest(self._masks)
        self._announce(text=self._text.take_rest(self._masks), reasoning=reasoning)
        await self.snapshot()

    def _announce(self, *, text: str = "", reasoning: str = "") -> None:
        if not (text or reasoning):
            return
        index, self._index = self._index, self._index + 1
        live.announce(
            live.conversation_group(self._conversation.pk),
            {
                "kind": "delta",
                "turn": self._turn_id,
                "answer": self.event_id,
                "index": index,
                "text": text,
                "reasoning": reasoning,
            },
        )

    async def snapshot(self) -> None:
        """Store what was shown so far, unless the database fails. Raise Fenced for a replaced loop."""
        if self._snapshot_through == self._index - 1:
            return
        self._snapshot_at = time.monotonic()
        through = self._index - 1
        shown = {
            "turn_id": self._turn_id,
            "event_id": self.event_id,
            "through": through,
            "text": self._text.shown,
            "reasoning": self._reasoning.shown,
        }
        try:
            self._masks = await astore.change(_store_snapshot, self._conversation, self._epoch, shown)
        except (ConversationBusy, OperationalError, InterfaceError) as error:  # the next one has everything
            logger.warning(
                "A snapshot of an answer is left out", **ids_of(self._conversation), error=str(error)
            )
            return
        self._snapshot_through = through
        # Readers that joined late or missed a piece read the snapshot.
        hint = {"kind": "answer", "answer": self.event_id, "through": through}
        live.announce(live.conversation_group(self._conversation.pk), hint)


def masks_of(conversation: ConversationRef) -> Masks:
    """Return the masks of the secrets that readers of the conversation must not see."""
    return secrets.masks_of(conversation.owner_id, conversation.pk)


def _store_snapshot(conversation: ConversationRef, epoch: int, shown: dict[str, Any]) -> Masks:
    """Store what was shown without the present secrets, and return their masks."""
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        # Read anew: a secret may have been added since the answer began.
        masks = masks_of(conversation)
        hidden = {name: masks.hide(shown[name]) for name in ("text", "reasoning")}
        # If the turn has ended meanwhile, the log has this beginning of the answer already.
        if AgentLoop.objects.of(conversation).filter(turn_id=shown["turn_id"]).exists():
            UnfinishedAnswer.objects.update_or_create(
                conversation_id=conversation.pk, defaults={**shown, **hidden}
            )
    return masks
