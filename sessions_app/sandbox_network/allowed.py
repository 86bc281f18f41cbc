"""Whether the programs of a conversation have a network: the operator and the owner decide."""

from __future__ import annotations

from django.conf import settings

from conversations.events import ConversationRef
from sessions_app.models import RunOptions
from sessions_app.sandbox_network.policy import NetworkPolicy

NEVER = (
    "This server gives sandboxes no network. Its operator can allow it (CONVSERVER_SANDBOX_NETWORK: ask or "
    "allowed)."
)


def has_network(conversation: ConversationRef) -> bool:
    """Return whether the programs that are started in a conversation from now on have a network."""
    match settings.CONFIGURATION.sandbox_settings.network:
        case NetworkPolicy.ALLOWED:
            return _choice_of(conversation) is not False
        case NetworkPolicy.ASK:
            return _choice_of(conversation) is True
        # Whatever the owner chose while the operator allowed it.
        case _:
            return False


def _choice_of(conversation: ConversationRef) -> bool | None:
    """Return the owner's choice; None for the operator's default."""
    return RunOptions.objects.of(conversation).values_list("network", flat=True).first()
