"""The calls that a user wants to approve: by a V1 conversation's policy, or by the owner's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from conversations.events import ConversationRef, Dialect
from sessions_app.models import AgentSetup, UserSettings
from sessions_app.settings import allowed_tools

ALWAYS = {"kind": "AlwaysConfirm"}
_RISKS = ("LOW", "MEDIUM", "HIGH")


class Confirmation(NamedTuple):
    """What decides whether a call needs an approval."""

    policy: Mapping[str, Any]
    """As spec V1 §2.2 has it: an object with a `kind`; empty if no call needs approval."""
    allowed: frozenset[tuple[str, str]] = frozenset()
    """The names and sources of the tools that the owner has allowed until that is withdrawn."""

    def is_wanted(self, risk: str, name: str, source: str | None) -> bool:
        """Return whether a call of this risk waits for approval."""
        return (name, source) not in self.allowed and wants_approval(self.policy, risk)


def confirmation_of(conversation: ConversationRef) -> Confirmation:
    """Return what a turn that begins goes by."""
    policy = policy_of(conversation)
    return Confirmation(policy, allowed_tools.allowed_in(conversation) if policy else frozenset())


def policy_of(conversation: ConversationRef) -> Mapping[str, Any]:
    """Return the policy of a conversation."""
    if conversation.dialect is Dialect.V1:
        rows = AgentSetup.objects.filter(conversation_id=conversation.pk)
        policy = rows.values_list("confirmation_policy", flat=True).first()
        if policy is not None:
            return cast(Mapping[str, Any], policy)
    owners = UserSettings.objects.filter(pk=conversation.owner_id)
    return ALWAYS if owners.values_list("confirmation_mode", flat=True).first() else {}


def wants_approval(policy: Mapping[str, Any], risk: str) -> bool:
    """Return whether a call of this risk waits for approval under the policy."""
    match policy.get("kind"):
        case "AlwaysConfirm":
            return True
        case "ConfirmRisky" if risk not in _RISKS:  # the default of the wire is to ask
            return policy.get("confirm_unknown") is not False
        case "ConfirmRisky":
            threshold = policy.get("threshold")
            return _RISKS.index(risk) >= _RISKS.index(threshold if threshold in _RISKS else "HIGH")
        case _:
            return False
