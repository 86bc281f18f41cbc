"""The tools that a V1 client knows: its library refuses a call of a kind for which it has no tool."""

from __future__ import annotations

from conversations.models import ConversationRef
from sessions_app.models import AgentSetup

_TERMINALS = frozenset({"terminal", "terminaltool", "execute_bash", "bashtool", "bash"})
"""The names of the tool that runs commands in all releases, in lower case."""


def has_terminal(conversation: ConversationRef) -> bool:
    """Say whether calls of a terminal can be shown as such.

    They can if no client has set up an agent, as with web frontends, or if its agent has the tool. The
    library of another client may lack the package for it (spec V1 §4.6).
    """
    agent = AgentSetup.objects.filter(pk=conversation.pk).values_list("shown_agent", flat=True).first()
    if not isinstance(agent, dict):
        return True
    tools = agent.get("tools")
    names = (tool.get("name") for tool in tools if isinstance(tool, dict)) if isinstance(tools, list) else ()
    return any(isinstance(name, str) and name.lower() in _TERMINALS for name in names)
