"""Which calls the user of a V1 conversation wants to approve (spec V1 §2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conversations.models import ConversationRef
from sessions_app.models import AgentSetup

_RISKS = ("LOW", "MEDIUM", "HIGH")


def policy_of(conversation: ConversationRef) -> Mapping[str, Any]:
    """Return the policy: an object with a `kind`; empty for a conversation without a setup."""
    rows = AgentSetup.objects.filter(conversation_id=conversation.pk)
    return rows.values_list("confirmation_policy", flat=True).first() or {}


def wants_approval(policy: Mapping[str, Any], risk: str) -> bool:
    """Say whether a call of this risk waits for approval under the policy."""
    match policy.get("kind"):
        case "AlwaysConfirm":
            return True
        case "ConfirmRisky":
            return _is_risky(policy, risk)
        case _:
            return False


def _is_risky(policy: Mapping[str, Any], risk: str) -> bool:
    if risk not in _RISKS:
        return policy.get("confirm_unknown") is not False
    threshold = policy.get("threshold")
    return _RISKS.index(risk) >= _RISKS.index(threshold if threshold in _RISKS else "HIGH")
