"""What a conversation is like right now, beside its log: what readers and lists are shown of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import Count, Exists, FilteredRelation, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from conversations.models import Conversation, ConversationQuerySet, shown_title
from sessions_app.models import AgentLoop, ExecutionStatus, LoopStatus

_OF_MOST = frozenset({ExecutionStatus.IDLE, ExecutionStatus.FINISHED})
"""What most loops are: those that do anything else are looked up, and not looked for."""


class LoopState(TypedDict):
    """The agent loop as a client sees it."""

    status: str
    execution_status: str
    agent: str
    error: str
    ended_by: str
    """Why the loop is not there any more (LoopEnd); empty while it is."""


class ConversationState(TypedDict):
    """What is shown of one conversation."""

    id: str
    title: str
    version: str
    repository: str | None
    branch: str | None
    trigger: str | None
    pr_number: list[int]
    tags: dict[str, str]
    last_seq: int
    last_message: str
    last_message_at: str | None
    created_at: str
    updated_at: str
    loop: LoopState
    deleted: bool


class ListedConversation(ConversationState):
    """What a list shows of one conversation to one user."""

    parent: str | None
    """The conversation that has started it, if that stands and is the same owner's."""
    children: int
    """How many of the same owner's it has started; deleted ones do not count."""
    pinned: bool
    archived: bool
    unread: bool
    seen_through: int
    """The seq of the last event that the user has seen, -1 for none."""


_COLUMNS = (
    "pk",
    "public_id",
    "title",
    "version",
    "repository",
    "branch",
    "trigger",
    "pr_number",
    "tags",
    "next_seq",
    "last_message",
    "last_message_at",
    "created_at",
    "updated_at",
    "deleted_at",
    "loop__status",
    "loop__execution_status",
    "loop__agent",
    "loop__error",
    "loop__ended_by",
)


def states_of(pks: Iterable[int]) -> dict[int, ConversationState]:
    """Return the states of these conversations, deleted ones too, by one query."""
    return states(Conversation.objects.filter(pk__in=list(pks)))


def states(rows: ConversationQuerySet) -> dict[int, ConversationState]:
    """Return the states of the rows in their order, by one query."""
    return {row["pk"]: _state(row) for row in rows.values(*_COLUMNS)}


_MARKS = (
    "asked_through",
    "answered_through",
    "own_parent",
    "child_count",
    "mark__through",
    "mark__through_at",
    "mark__pinned_at",
    "mark__archived_at",
)


def listed(rows: ConversationQuerySet, user_pk: int) -> dict[int, ListedConversation]:
    """Return what a list shows this user of the rows, in their order, by one query."""
    siblings = Conversation.objects.standing().filter(parent=OuterRef("pk"), owner=OuterRef("owner"))
    own_parent = Conversation.objects.standing().filter(pk=OuterRef("parent"), owner=OuterRef("owner"))
    marked = rows.annotate(
        mark=FilteredRelation("marks", condition=Q(marks__user=user_pk)),
        own_parent=Subquery(own_parent.values("public_id")),
        child_count=Coalesce(
            Subquery(siblings.order_by().values("parent").annotate(n=Count("pk")).values("n")), 0
        ),
    )
    return {row["pk"]: _listed(row) for row in marked.values(*_COLUMNS, *_MARKS)}


def _listed(row: dict[str, Any]) -> ListedConversation:
    through = row["mark__through"]
    return {
        **_state(row),
        "parent": row["own_parent"],
        "children": row["child_count"],
        "pinned": row["mark__pinned_at"] is not None,
        "archived": row["mark__archived_at"] is not None,
        "unread": _is_unread(row),
        "seen_through": -1 if through is None else through,
    }


def _is_unread(row: dict[str, Any]) -> bool:
    """Say whether something stands in the log that the user should see, without a look at the log.

    That is what follows the last event that was seen and the user's own newest input: anything, as long
    as nothing was ever seen, and then a message, so that the state and the end of a turn, which come
    after its answer, make nothing unread. While the agent works on an own message that was not seen
    anywhere yet, nothing is; what becomes of it is.
    """
    through = -1 if row["mark__through"] is None else row["mark__through"]
    asked, seen_at = row["asked_through"], row["mark__through_at"]
    if row["next_seq"] - 1 <= max(through, asked) or asked > max(through, row["answered_through"]):
        return False
    return seen_at is None or (row["last_message_at"] is not None and row["last_message_at"] > seen_at)


def in_status(rows: ConversationQuerySet, statuses: Collection[str]) -> ConversationQuerySet:
    """Return those whose agent is shown to be doing one of these things; one without a loop is idle."""
    loops = AgentLoop.objects.filter(execution_status__in=statuses)
    if _OF_MOST.isdisjoint(statuses):
        return rows.filter(pk__in=loops.values("pk"))
    shown = Exists(loops.filter(pk=OuterRef("pk")))
    return rows.filter(shown | Q(loop=None) if ExecutionStatus.IDLE in statuses else shown)


def _state(row: dict[str, Any]) -> ConversationState:
    return {
        "id": row["public_id"],
        "title": shown_title(row["title"], row["public_id"]),
        "version": row["version"],
        "repository": row["repository"],
        "branch": row["branch"],
        "trigger": row["trigger"],
        "pr_number": row["pr_number"],
        "tags": row["tags"],
        "last_seq": row["next_seq"] - 1,
        "last_message": row["last_message"],
        "last_message_at": row["last_message_at"] and iso(row["last_message_at"]),
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "loop": {
            "status": row["loop__status"] or LoopStatus.STOPPED,
            "execution_status": row["loop__execution_status"] or ExecutionStatus.IDLE,
            "agent": row["loop__agent"] or "",
            "error": row["loop__error"] or "",
            "ended_by": row["loop__ended_by"] or "",
        },
        "deleted": row["deleted_at"] is not None,
    }


def iso(moment: datetime) -> str:
    """Return a time as every door of this server writes it: UTC, six fraction digits, `Z`."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
