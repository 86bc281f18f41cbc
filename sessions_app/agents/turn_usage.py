"""The usage of a turn's calls of models, until the commit of its next event counts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from conversations.dialects import EventAuthor
from conversations.events import Appended, ConversationRef, Metrics, NewEvent
from sessions_app.agents import model_use
from sessions_app.agents.base import CallUsage

AppendHook = Callable[[Sequence[Appended]], None]


class TurnUsage:
    """The usage of one turn's calls of models."""

    def __init__(self, conversation: ConversationRef, author: EventAuthor, counted: Metrics) -> None:
        """`counted` are the conversation's totals at the turn's start."""
        self._conversation = conversation
        self._author = author
        self._totals = counted
        self._newest: CallUsage | None = None
        self._pending: list[CallUsage] = []

    def add(self, usage: CallUsage) -> None:
        self._newest = usage
        self._pending.append(usage)
        self._totals = Metrics(
            accumulated_cost=self._totals.accumulated_cost + (usage.cost or 0.0),
            prompt_tokens=self._totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self._totals.completion_tokens + usage.completion_tokens,
        )

    def shown_in(self, event: NewEvent) -> NewEvent:
        """Return an event of the agent with the totals, if the turn has called a model."""
        newest = self._newest
        if newest is None:
            return event
        tokens = newest.prompt_tokens + newest.completion_tokens
        payload = self._author.with_totals(
            event.payload, self._totals, model=newest.model, newest_tokens=tokens
        )
        return event if payload == event.payload else replace(event, payload=payload)

    def take(self) -> list[CallUsage]:
        """Return the uncounted calls to an append, which counts them."""
        taken, self._pending = self._pending, []
        return taken

    def give_back(self, usages: Sequence[CallUsage]) -> None:
        """Take back calls whose append has failed."""
        self._pending = [*usages, *self._pending]

    def counting(self, usages: Sequence[CallUsage], also: AppendHook | None) -> AppendHook | None:
        """Return the hook of an append that counts these calls once, also if the append is repeated."""
        if not usages:
            return also

        def count(appended: Sequence[Appended]) -> None:
            if also is not None:
                also(appended)
            # Events that were stored before were counted with their commit.
            if not appended or any(each.is_new for each in appended):
                model_use.record(self._conversation, usages)

        return count
