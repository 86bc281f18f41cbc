"""The names of remote agents, as the option `agent` of a conversation has them."""

from __future__ import annotations

import re

from conversations.models import Conversation, ConversationRef
from sessions_app.models import REMOTE_NAME_MAX_LENGTH

PREFIX = "remote:"
"""The beginning of the option `agent` of a remote agent."""
PATTERN = rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{REMOTE_NAME_MAX_LENGTH - 1}}}"
NAME = re.compile(PATTERN, re.ASCII)

NOT_CONNECTED = "The agent {name} is not connected. It answers once its program is started."


def name_in(agent: str) -> str | None:
    """Return the name of the remote agent in an option; None for other agents."""
    name = agent.removeprefix(PREFIX)
    return name if agent.startswith(PREFIX) and NAME.fullmatch(name) else None


def name_of(conversation: ConversationRef) -> str | None:
    """Return the remote agent of a conversation's present or next turn; None for other agents."""
    rows = Conversation.objects.with_pks([conversation.pk])
    found = rows.values_list("loop__turn_id", "loop__turn_agent", "run_options__agent").first()
    turn_id, of_turn, chosen = found or (None, "", "")
    # A choice during a turn is for the next one.
    return name_in((chosen if turn_id is None else of_turn) or "")


def not_connected(name: str) -> str:
    """Return the sentence for people while the program is not connected."""
    return NOT_CONNECTED.format(name=name)
