"""Tools that a user has allowed until that is withdrawn: their calls run without approval."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q, QuerySet

from conversations.exceptions import LoopUnavailable
from conversations.models import ConversationRef
from sessions_app.models import AllowedFor, AllowedTool, ToolRun

NOT_ALWAYS = "What waits cannot be allowed for later calls, too. Approve it for this time only."


class TooManyAllowed(LoopUnavailable):
    """The user has allowed as many tools as possible; nothing was decided."""

    code = "conflict"


def allowable(waiting: Collection[ToolRun]) -> tuple[str, str] | None:
    """Return the tool of all calls that wait; None if they are of several, or of one that asks always."""
    tools = {(run.name, run.source) for run in waiting}
    name, source = next(iter(tools)) if len(tools) == 1 else ("", None)
    return None if source is None else (name, source)


def allow(conversation: ConversationRef, waiting: Collection[ToolRun], scope: AllowedFor) -> None:
    """Allow the tool of the calls that wait, in the running transaction. Raise LoopUnavailable."""
    tool = allowable(waiting)
    if tool is None:
        raise LoopUnavailable(NOT_ALWAYS)
    most = 1_000
    if of_user(conversation.owner_id).count() >= most:
        raise TooManyAllowed(f"You have allowed {most:,} tools. Withdraw some of them in Settings, Tools.")
    only_in = conversation.pk if scope is AllowedFor.CONVERSATION else None
    row = AllowedTool(user_id=conversation.owner_id, conversation_id=only_in, name=tool[0], source=tool[1])
    AllowedTool.objects.bulk_create([row], ignore_conflicts=True)


def allowed_in(conversation: ConversationRef) -> frozenset[tuple[str, str]]:
    """Return the tools whose calls run in a conversation without approval: each its name and source."""
    here = Q(conversation=None) | Q(conversation_id=conversation.pk)
    rows = AllowedTool.objects.filter(here, user_id=conversation.owner_id)
    return frozenset(rows.values_list("name", "source"))


def of_user(user_id: int) -> QuerySet[AllowedTool]:
    """Return what a user has allowed, newest first; without that of deleted conversations."""
    rows = AllowedTool.objects.filter(user_id=user_id, conversation__deleted_at=None)
    return rows.select_related("conversation").order_by("-pk")


def withdraw(user_id: int, pk: int) -> bool:
    """Make the calls of a tool ask again; return whether it was allowed."""
    return bool(AllowedTool.objects.filter(user_id=user_id, pk=pk).delete()[0])
