"""What the holder of an API token may do; a visitor with other credentials may do all that its user may."""

from __future__ import annotations

from django.contrib.auth.models import User

from conversations.access import Visitor
from conversations.exceptions import ConversationError
from conversations.payloads.limits import VisitorLimits, limit, limits_of
from sessions_app.models import ApiToken, Grant, Scope

_ATTRIBUTE = "_api_token"
FRAME_SCOPES = {
    "message": Scope.RUN,
    "event": Scope.WRITE,
    "events": Scope.WRITE,
    "run": Scope.RUN,
    "pause": Scope.RUN,
    "stop": Scope.RUN,
    "confirm": Scope.RUN,
}
"""The scope that each frame of the native socket needs beside `read`, which opens it."""
ONE_ONLY = "This token is for one conversation only. Use a token for all conversations."


class ScopeTooSmall(ConversationError):
    """The visitor's token lacks the necessary scope."""

    code = "scope_too_small"


def holder_of(token: ApiToken) -> User:
    """Return the token's user, limited to what the token opens."""
    user = token.user
    setattr(user, _ATTRIBUTE, token)
    may_create = token.conversation_id is None and Scope.WRITE in token.scope_set
    limit(user, VisitorLimits(only=token.conversation_id, may_create=may_create))
    return user


def token_of(user: Visitor) -> ApiToken | None:
    """Return the visitor's token; None if it came by other credentials."""
    found: ApiToken | None = getattr(user, _ATTRIBUTE, None)
    return found


def may(user: Visitor, scope: Scope) -> bool:
    token = token_of(user)
    return token is None or scope in token.scope_set


def require(user: Visitor, scope: Scope) -> None:
    """Raise ScopeTooSmall unless the visitor has this scope."""
    if not may(user, scope):
        raise ScopeTooSmall(f"This needs a token with the scope `{scope.value}`.")


def require_all_conversations(user: Visitor) -> None:
    token = token_of(user)
    if token is not None and token.conversation_id is not None:
        raise ScopeTooSmall(ONE_ONLY)


def require_user_wide(user: Visitor) -> None:
    """Raise ScopeTooSmall unless the visitor may change what counts for all conversations of the user."""
    if limits_of(user).only is not None:
        raise ScopeTooSmall(ONE_ONLY)
    require(user, Scope.ADMIN)


def require_within(user: Visitor, grant: Grant) -> None:
    """Raise ScopeTooSmall if a new token of the visitor could do more, or for longer, than their own."""
    own = token_of(user)
    if own is None:
        return
    for scope in grant.scopes:
        require(user, Scope(scope))
    if own.expires_at is not None and (grant.expires_at is None or grant.expires_at > own.expires_at):
        raise ScopeTooSmall("A token can't create one that outlives it. Give an earlier `expires_at`.")


def sees_keys(user: Visitor) -> bool:
    """Return whether the visitor may see keys of conversations, which open more than a small token does."""
    token = token_of(user)
    return token is None or token.is_whole
