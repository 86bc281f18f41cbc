"""Authentication on the agent face: the key of one conversation comes before all other credentials."""

from __future__ import annotations

import re

from django.contrib.auth.models import User
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from conversations import access
from conversations.exceptions import ConversationNotFound, InvalidConversationId
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, normal_id
from convserver.api.authentication import KeyAuthentication, LoginAuthentication
from convserver.api.openhands.errors import Refused
from convserver.api.v1.agent.errors import malformed_id
from sessions_app.identity.conversation_keys import opened_by

_HEX_DIGITS = re.compile("[0-9a-f]{32}")


class ConversationKeyAuthentication(BaseAuthentication):
    """The key of one conversation, in X-Session-API-Key: its owner, limited to that conversation."""

    def authenticate(self, request: Request) -> tuple[User, ConversationRef] | None:
        """Return the owner, and the conversation as `request.auth`; None without such a key."""
        conversation = opened_by_key(request._request)
        if conversation is None:
            return None
        owner = User.objects.filter(pk=conversation.owner_id, is_active=True).first()
        return None if owner is None else (owner, conversation)

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge that makes a refusal a 401."""
        return "Bearer"


# The first reads a header that the second would refuse as an unknown key.
AUTHENTICATION = (ConversationKeyAuthentication, KeyAuthentication, LoginAuthentication)


def opened_by_key(request: HttpRequest) -> ConversationRef | None:
    """Return the conversation whose key the request has; None if it has none."""
    return opened_by(request.headers.get("X-Session-API-Key", ""))


def conversation_of(request: Request, conversation_id: str) -> ConversationRef:
    """Return the conversation that the request may access under an id in any spelling.

    Raise ConversationNotFound; InvalidRequest if there is none and the id is not a UUID.
    """
    try:
        conversation = access.writable(request.user, conversation_id)
        if not _is_let_in(request, conversation):
            raise ConversationNotFound("Conversation not found.")
    except (ConversationNotFound, InvalidConversationId) as error:
        if is_uuid(conversation_id):
            raise
        # Only where nothing was found: conversations of V0 have ids of other forms, which are served as well.
        raise malformed_id(conversation_id, "path", "conversation_id") from error
    return conversation


def visible(request: Request) -> ConversationQuerySet:
    """Return the conversations that the request may access."""
    rows = Conversation.objects.open_to(request.user)
    # The key stands for its owner, whose other conversations it must not open.
    return rows.with_pks([request.auth.pk]) if isinstance(request.auth, ConversationRef) else rows


def require_more_than_one(request: Request) -> None:
    """Make sure that the request may create conversations. Raise Refused for the key of one."""
    if isinstance(request.auth, ConversationRef):
        raise Refused(403, {"detail": "This key opens one conversation, and makes no others."})


def own_of(request: Request, conversation_id: str) -> ConversationRef | None:
    """Return the visitor's own conversation with this id, deleted or not; None if there is none."""
    try:
        conversation = access.restorable(request.user, conversation_id)
    except ConversationNotFound:
        return None
    return conversation if _is_let_in(request, conversation) else None


def is_uuid(text: str) -> bool:
    """Return whether an id is a UUID, with dashes or as 32 hex digits, in any case (R1)."""
    try:
        return _HEX_DIGITS.fullmatch(normal_id(text)) is not None
    except InvalidConversationId:
        return False


def _is_let_in(request: Request, conversation: ConversationRef) -> bool:
    return not isinstance(request.auth, ConversationRef) or request.auth.pk == conversation.pk
