"""The present state of a conversation, beside its log, for readers and lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import Count, Exists, FilteredRelation, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from conversations.events import Kind
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    ConversationRef,
    Event,
    shown_title,
)
from sessions_app.live.state_words import NOT_STARTED, in_state
from sessions_app.models import AgentLoop, ExecutionStatus, LoopStatus, ModelUse

# The states of most loops: each row is tested for them, while rows of rarer states are looked up by key.
_OF_MOST = frozenset(
    {ExecutionStatus.IDLE.value, ExecutionStatus.FINISHED.value, LoopStatus.STOPPED.value, NOT_STARTED}
)


class LoopState(TypedDict):
    status: str
    execution_status: str
    agent: str
    error: str
    ended_by: str
    """Why the loop has ended (LoopEnd); empty while it runs."""


class DamagedPlace(TypedDict):
    """One damaged place of a log."""

    seq: int | None
    """The first event; None for the whole log."""
    problem: str
    """One of DamageKind."""
    detail: str


class ConversationState(TypedDict):
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
    expires_at: str | None
    """When a temporary conversation is purged; None for all others."""
    damage: list[DamagedPlace] | None
    """What a verification found damaged in the log; None if nothing was."""


class AgentProgress(TypedDict):
    """The agent's progress on the user's inputs; each `through` is a seq, -1 for none."""

    asked_through: int
    """The newest input."""
    delivered_through: int
    """The newest input that a turn has taken up."""
    answered_through: int
    """The newest input that was answered or given up."""
    working_since: str | None
    """When the running turn began or resumed; None while no turn runs."""


class ModelTotals(TypedDict):
    """What the models of a conversation have used so far."""

    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars; only calls with a known price."""
    has_unpriced_calls: bool


class ListedConversation(ConversationState):
    parent: str | None
    """The active conversation of the same owner that has started it."""
    children: int
    """The number of active conversations of the same owner that it has started."""
    pinned: bool
    archived: bool
    unread: bool
    seen_through: int


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
    "expires_at",
    "damage",
    "loop__status",
    "loop__execution_status",
    "loop__agent",
    "loop__error",
    "loop__ended_by",
)


def states_of(pks: Iterable[int]) -> dict[int, ConversationState]:
    """Return the states of these conversations, deleted ones too, by one query."""
    return states(Conversation.objects.filter(pk__in=list(pks)))


def state_of(conversation: ConversationRef) -> ConversationState:
    """Return the state of one conversation, also of a deleted one."""
    return states_of([conversation.pk])[conversation.pk]


def states(rows: ConversationQuerySet) -> dict[int, ConversationState]:
    """Return the states of the rows in their order, by one query."""
    return {row["pk"]: _state(row) for row in rows.values(*_COLUMNS)}


class LastTurn(TypedDict):
    """The newest turn that has ended; each number is a seq."""

    state: str
    began: int
    """The first event of the turn; its inputs come before."""
    asked_after: int
    """The first event of the turn before it, -1 for none; this turn's inputs come after."""


def last_turn_of(conversation: ConversationRef) -> LastTurn | None:
    """Return the newest turn that has ended, None without one, by three queries at most."""
    ends = Event.objects.of(conversation).filter(kind=Kind.TURN, turn_id__isnull=False)
    newest = list(ends.newest_first().values_list("turn_id", "text")[:2])
    if not newest:
        return None
    began = [_first_seq(conversation, turn_id) for turn_id, _ in newest]
    state = newest[0][1].partition(":")[0]
    return {"state": state, "began": began[0], "asked_after": began[1] if len(began) > 1 else -1}


def _first_seq(conversation: ConversationRef, turn_id: str | None) -> int:
    events = Event.objects.of(conversation).filter(turn_id=turn_id)
    seq: int = events.order_by("seq").values_list("seq", flat=True)[0]
    return seq


def progress_of(conversation: ConversationRef) -> AgentProgress:
    """Return the agent's progress, by two queries at most."""
    row = Conversation.objects.select_related("loop").get(pk=conversation.pk)
    loop = getattr(row, "loop", None)
    turn_id = loop.turn_id if loop else None
    began_at = None
    if loop and turn_id and loop.execution_status == ExecutionStatus.RUNNING:
        states = Event.objects.of(conversation).of_turn(turn_id).filter(kind=Kind.STATE)
        began_at = states.newest_first().values_list("timestamp", flat=True).first()
    return {
        "asked_through": row.asked_through,
        "delivered_through": max(row.answered_through, loop.turn_through if loop and turn_id else -1),
        "answered_through": row.answered_through,
        "working_since": iso(began_at) if began_at else None,
    }


def model_totals_of(conversation: ConversationRef) -> ModelTotals:
    """Return the total use of models in a conversation, by one query."""
    unpriced = ModelUse.objects.of(OuterRef("pk")).unpriced()
    rows = Conversation.objects.filter(pk=conversation.pk).annotate(has_unpriced_calls=Exists(unpriced))
    names = ("prompt_tokens", "completion_tokens", "accumulated_cost", "has_unpriced_calls")
    row = rows.values(*names).get()
    return {
        "prompt_tokens": row["prompt_tokens"],
        "completion_tokens": row["completion_tokens"],
        "cost": row["accumulated_cost"],
        "has_unpriced_calls": row["has_unpriced_calls"],
    }


ASKING_MAX = 100
"""At most this many waiting conversations are announced one by one."""


def asking(rows: ConversationQuerySet) -> list[str]:
    """Return the ids of the conversations that wait for an approval, at most ASKING_MAX."""
    waiting = in_status(rows, [ExecutionStatus.WAITING_FOR_CONFIRMATION])
    return list(waiting.values_list("public_id", flat=True)[:ASKING_MAX])


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
    """Return the rows as this user's list shows them, in their order, by one query."""
    return {row["pk"]: listed_in(row) for row in listed_rows(rows, user_pk)}


def listed_rows(
    rows: ConversationQuerySet, user_pk: int | Combinable, *more: str
) -> QuerySet[Conversation, dict[str, Any]]:
    """Return the query for `listed_in` of each row, with `more` columns."""
    siblings = Conversation.objects.active().filter(parent=OuterRef("pk"), owner=OuterRef("owner"))
    own_parent = Conversation.objects.active().filter(pk=OuterRef("parent"), owner=OuterRef("owner"))
    # A conversation without a mark of this user is listed, too, so the condition is in the join.
    marked = rows.annotate(
        mark=FilteredRelation("marks", condition=Q(marks__user=user_pk)),
        own_parent=Subquery(own_parent.values("public_id")),
        child_count=Coalesce(
            Subquery(siblings.order_by().values("parent").annotate(n=Count("pk")).values("n")), 0
        ),
    )
    found: QuerySet[Conversation, dict[str, Any]] = marked.values(*_COLUMNS, *_MARKS, *more)
    return found


def listed_in(row: Mapping[str, Any]) -> ListedConversation:
    """Return a row of `listed_rows` as a list shows it."""
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


def _is_unread(row: Mapping[str, Any]) -> bool:
    """Return whether the log has something that the user should see, without reading the log.

    New is what follows the last seen event and the user's own newest input: anything, if the user has
    seen nothing yet, otherwise a message, so that the state and the end of a turn, which follow its
    answer, do not count. While the agent works on the user's own unseen message, nothing is new.
    """
    through = -1 if row["mark__through"] is None else row["mark__through"]
    asked, seen_at = row["asked_through"], row["mark__through_at"]
    if row["next_seq"] - 1 <= max(through, asked) or asked > max(through, row["answered_through"]):
        return False
    return seen_at is None or (row["last_message_at"] is not None and row["last_message_at"] > seen_at)


def in_status(rows: ConversationQuerySet, statuses: Collection[str]) -> ConversationQuerySet:
    """Return the rows whose agent is in one of these execution statuses; one without a loop is idle."""
    loops = AgentLoop.objects.filter(execution_status__in=statuses)
    if _OF_MOST.isdisjoint(statuses):
        return rows.filter(pk__in=loops.values("pk"))
    shown = Exists(loops.filter(pk=OuterRef("pk")))
    return rows.filter(shown | Q(loop=None) if ExecutionStatus.IDLE in statuses else shown)


def shown_in(rows: ConversationQuerySet, state: str) -> ConversationQuerySet:
    """Return the rows whose agent is shown in this state, one of the keys of WORDS."""
    loops = AgentLoop.objects.filter(in_state(state))
    if state not in _OF_MOST:
        return rows.filter(pk__in=loops.values("pk"))
    shown = Exists(loops.filter(pk=OuterRef("pk")))
    return rows.filter(shown | Q(loop=None) if state == NOT_STARTED else shown)


def _state(row: Mapping[str, Any]) -> ConversationState:
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
        "expires_at": row["expires_at"] and iso(row["expires_at"]),
        "damage": row["damage"],
    }


def iso(moment: datetime) -> str:
    """Return a time as every door writes it: UTC, six fraction digits, `Z`."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
