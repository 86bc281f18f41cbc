"""Which tools a V1 client can read about: its library refuses a call whose kind it has no tool for."""

from __future__ import annotations

from conversations.models import ConversationRef
from sessions_app.models import AgentSetup

_TERMINALS = frozenset({"terminal", "terminaltool", "execute_bash", "bashtool", "bash"})
"""What releases have called the tool that runs commands, in lower case."""


def has_terminal(conversation: ConversationRef) -> bool:
    """Say whether calls of a terminal can be shown as such.

    They can where no client has set an agent up, as web frontends do not, or one that has the tool; what
    another client brings may lack the package that knows it (spec V1 §4.6).
    """
    agent = AgentSetup.objects.filter(pk=conversation.pk).values_list("shown_agent", flat=True).first()
    if not isinstance(agent, dict):
        return True
    tools = agent.get("tools")
    names = (tool.get("name") for tool in tools if isinstance(tool, dict)) if isinstance(tools, list) else ()
    return any(isinstance(name, str) and name.lower() in _TERMINALS for name in names)
