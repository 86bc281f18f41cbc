"""The choice in a conversation's menu of what messages do while the agent works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from conversations.events import ConversationRef
from sessions_app.loops.inputs import while_working
from sessions_app.models import WhileWorking

WORDS: Final[Mapping[WhileWorking, str]] = {
    WhileWorking.QUEUE: "queue it",
    WhileWorking.STEER: "show it before the next step",
    WhileWorking.INTERRUPT: "interrupt the agent",
    WhileWorking.REJECT: "refuse it",
}
"""The ends of the sentence `If I write while the agent works: …`."""


class Choice(NamedTuple):
    value: str
    words: str
    is_chosen: bool


def choices_of(conversation: ConversationRef) -> Sequence[Choice]:
    """Return the choices with the one that counts for a conversation."""
    chosen = while_working.choice_of(conversation)
    return [Choice(choice, words, choice is chosen) for choice, words in WORDS.items()]
