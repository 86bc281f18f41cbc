"""Keys that open one conversation on the agent face: derived, never stored (spec V1 §5)."""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256

from django.conf import settings

from conversations.models import Conversation, ConversationRef
from sessions_app.models import AgentSetup

PREFIX = "ck_"
_COLUMNS = ("pk", "owner_id", "version", "owner__is_active", "agent_setup__key_rotation")
_PURPOSE = b"convserver conversation key"
"""Another use of SECRET_KEY derives other keys."""


def key_of(conversation: ConversationRef) -> str:
    """Return the key that opens this conversation until it is rotated."""
    rotation = AgentSetup.objects.filter(pk=conversation.pk).values_list("key_rotation", flat=True).first()
    return key(conversation.public_id, rotation or 0)


def key(public_id: str, rotation: int) -> str:
    """Return the key of this rotation, under the newest secret key."""
    return f"{PREFIX}{public_id}_{_mac(settings.SECRET_KEY, public_id, rotation)}"


def opened_by(text: str) -> ConversationRef | None:
    """Return the conversation of a key, if its owner is active; None for an invalid key."""
    if not text.startswith(PREFIX):
        return None
    public_id, _, mac = text.removeprefix(PREFIX).rpartition("_")
    if "\0" in public_id:
        return None
    rows = Conversation.objects.standing().with_public_ids([public_id])
    row = rows.values(*_COLUMNS).first()
    if row is None or not row["owner__is_active"]:
        return None
    rotation = row["agent_setup__key_rotation"] or 0
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    given = mac.encode(errors="surrogatepass")
    is_right = any(hmac.compare_digest(given, _mac(each, public_id, rotation).encode()) for each in keys)
    return ConversationRef(row["pk"], public_id, row["owner_id"], row["version"]) if is_right else None


def _mac(secret_key: str, public_id: str, rotation: int) -> str:
    text = f"{rotation} {public_id}".encode()
    derived = hmac.digest(secret_key.encode(), _PURPOSE, sha256)
    return base64.urlsafe_b64encode(hmac.digest(derived, text, sha256)).decode().rstrip("=").replace("_", "-")
