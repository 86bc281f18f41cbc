"""Remote agents, as forms show them among the agents to choose from."""

from __future__ import annotations

from conversations.events import ConversationRef
from sessions_app.agents import registry
from sessions_app.agents.registry import AgentKind
from sessions_app.agents.remote import attachments
from sessions_app.agents.remote.names import PREFIX, name_in

DESCRIPTION = "A program outside this server."


def kinds_for(
    user_id: int, conversation: ConversationRef | None = None, *, chosen: str = ""
) -> list[AgentKind]:
    """Return the user's connected remote agents for a conversation, or for all, and the chosen one."""
    if not registry.remote_is_offered():
        return []
    connected = attachments.connected_names(user_id, conversation)
    wanted = name_in(chosen)
    names = connected if wanted is None else connected | {wanted}
    return [
        AgentKind(f"{PREFIX}{name}", name, DESCRIPTION, connected=name in connected) for name in sorted(names)
    ]
