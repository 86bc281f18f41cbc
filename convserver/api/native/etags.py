"""ETags of conversations, which cover users' settings, so that no client overwrites an unseen change."""

from __future__ import annotations

import json
from collections.abc import Collection
from hashlib import sha256

from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from conversations.models import shown_title
from sessions_app.live.status import ListedConversation

IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": r'^(?:\*|(?:W/)?"[!#-+\--~]*"(?:, ?(?:W/)?"[!#-+\--~]*")*)$'},
    OpenApiParameter.HEADER,
    description="One or more ETags, or `*`; without it the change is unconditional.",
)
ETAG = OpenApiParameter(
    "ETag",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The ETag of the conversation's metadata; new events don't change it.",
    response=[200, 201, 412],
)


def etag_of(state: ListedConversation, *, is_title_made: bool) -> str:
    """Return the ETag of all that users set on a conversation, independent of its log and its agent."""
    facts = {
        # A title that the agent made must not refuse a user's change: it counts as the default one.
        "title": shown_title(None, state["id"]) if is_title_made else state["title"],
        "version": state["version"],
        "repository": state["repository"],
        "branch": state["branch"],
        "trigger": state["trigger"],
        "pr_number": state["pr_number"],
        "tags": state["tags"],
        "deleted": state["deleted"],
        "parent": state["parent"],
        "pinned": state["pinned"],
        "archived": state["archived"],
    }
    # Sorted, so that tags in another order are the same; 128 bits meet by chance in no conversation.
    return f'"{sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]}"'


def wanted(request: Request) -> Collection[str] | None:
    """Return the ETags in `If-Match`; None without the header. Raise ValidationError if it is not a list."""
    header = request.headers.get("If-Match")
    if header is None:
        return None
    named = parse_etags(header)
    # Django returns an empty list for a header that it cannot read.
    if not named:
        raise ValidationError("If-Match is a list of ETags in quotes, or *.")
    return named


def matches(wanted: Collection[str], etag: str) -> bool:
    """Return whether the ETag is one of these; a weak one never is (RFC 9110)."""
    return "*" in wanted or etag in wanted
