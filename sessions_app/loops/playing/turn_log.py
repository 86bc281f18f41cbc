"""What one turn appends to the log, with what its calls of models have used since its last event."""

from __future__ import annotations

from collections.abc import Sequence

from conversations.dialects import EventAuthor
from conversations.events import Appended, Authored, ConversationRef, Metrics, NewEvent
from conversations.exceptions import OutcomeUnknown
from sessions_app import astore
from sessions_app.agents.base import CallUsage
from sessions_app.agents.turn_usage import AppendHook, TurnUsage
from sessions_app.models import UnfinishedAnswer


class TurnLog:
    """The events of one turn, appended under its loop's epoch."""

    def __init__(
        self,
        conversation: ConversationRef,
        turn_id: str,
        epoch: int,
        *,
        author: EventAuthor,
        counted: Metrics,
    ) -> None:
        """`counted` are the conversation's totals at the turn's start."""
        self.stored_through = -1
        self._conversation = conversation
        self._turn_id = turn_id
        self._epoch = epoch
        self._usage = TurnUsage(conversation, author, counted)
        self._has_old_snapshot = False

    def count(self, usage: CallUsage) -> None:
        """Count a call of a model in the commit of the next event."""
        self._usage.add(usage)

    def take_uncounted(self) -> list[CallUsage]:
        """Return the calls of models that no event has counted; the caller counts them."""
        return self._usage.take()

    def forget_snapshot(self) -> None:
        """Delete the snapshot of an unfinished answer in the commit of the next event."""
        self._has_old_snapshot = True

    def shown(self, authored: Authored, event_id: str) -> NewEvent:
        """Return an event of the agent, with the totals if the turn has called a model."""
        return self._usage.shown_in(authored.event(event_id, turn_id=self._turn_id))

    async def store(self, events: Sequence[NewEvent], *, also: AppendHook | None = None) -> list[Appended]:
        """Append events, and count what the turn's calls of models have used since the last ones."""
        usages = self._usage.take()  # taken before the append: calls made meanwhile count with the next one
        also = self._usage.counting(usages, self._forgetting_snapshot(also))
        try:
            stored = await astore.append(self._conversation, events, epoch=self._epoch, also=also)
        except OutcomeUnknown:
            raise  # the commit may have counted them: giving them back could count them twice
        except Exception:
            self._usage.give_back(usages)
            raise
        self.stored_through = stored[-1].seq
        return stored

    def _forgetting_snapshot(self, also: AppendHook | None) -> AppendHook | None:
        if not self._has_old_snapshot:
            return also
        # In the same commit as the message: late readers see the text once.
        self._has_old_snapshot = False

        def forget(appended: Sequence[Appended]) -> None:
            UnfinishedAnswer.objects.filter(conversation_id=self._conversation.pk).delete()
            if also is not None:
                also(appended)

        return forget
