"""What a conversation is like right now, beside its log: what readers and lists are shown of it."""

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

_OF_MOST = frozenset(
    {ExecutionStatus.IDLE.value, ExecutionStatus.FINISHED.value, LoopStatus.STOPPED.value, NOT_STARTED}
)
"""What most loops are: those that do anything else are looked up, and not looked for."""


class LoopState(TypedDict):
    """The agent loop as a client sees it."""

    status: str
    execution_status: str
    agent: str
    error: str
    ended_by: str
    """Why the loop is not there any more (LoopEnd); empty while it is."""


class DamagedPlace(TypedDict):
    """One place of a log that is not as it was stored."""

    seq: int | None
    """The first event; None for the whole log."""
    problem: str
    """One of DamageKind."""
    detail: str


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
    damage: list[DamagedPlace] | None
    """What a verification found damaged in the log; None if nothing was."""


class AgentProgress(TypedDict):
    """How far the agent has come with what it was asked; each `through` is a seq, -1 for none."""

    asked_through: int
    """The newest input."""
    delivered_through: int
    """The newest input that a turn has taken up."""
    answered_through: int
    """The newest input that was answered or given up on."""
    working_since: str | None
    """When the turn that is being played began or went on; None while none is."""


class ModelTotals(TypedDict):
    """What the models of a conversation have used so far."""

    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars; of the calls whose price is known."""
    has_unpriced_calls: bool


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


def states(rows: ConversationQuerySet) -> dict[int, ConversationState]:
    """Return the states of the rows in their order, by one query."""
    return {row["pk"]: _state(row) for row in rows.values(*_COLUMNS)}


class LastTurn(TypedDict):
    """How the newest turn that is over has ended; each number is a seq."""

    state: str
    """The agent's state at its end."""
    began: int
    """The first event of the turn: what it was asked stands before."""
    asked_after: int
    """The first event of the turn before it, -1 for none: what this one was asked stands after."""


def last_turn_of(conversation: ConversationRef) -> LastTurn | None:
    """Return how the newest turn that is over has ended, None without one, by three queries at most."""
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
    """Return how far the agent has come, by two queries at most."""
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
    """Return what the models of a conversation have used, by one query."""
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
"""More conversations that ask at once are not told of one by one."""


def asking(rows: ConversationQuerySet) -> list[str]:
    """Return the ids of those that wait for an approval, at most ASKING_MAX."""
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
    """Return what a list shows this user of the rows, in their order, by one query."""
    return {row["pk"]: listed_in(row) for row in listed_rows(rows, user_pk)}


def listed_rows(
    rows: ConversationQuerySet, user_pk: int | Combinable, *more: str
) -> QuerySet[Conversation, dict[str, Any]]:
    """Return the query for `listed_in` of each row, with more columns if any are named."""
    siblings = Conversation.objects.active().filter(parent=OuterRef("pk"), owner=OuterRef("owner"))
    own_parent = Conversation.objects.active().filter(pk=OuterRef("parent"), owner=OuterRef("owner"))
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
    """Return what a list shows of a row of `listed_rows`."""
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


def shown_in(rows: ConversationQuerySet, state: str) -> ConversationQuerySet:
    """Return those whose agent people are shown in this state, one of the keys of WORDS."""
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
        "damage": row["damage"],
    }


def iso(moment: datetime) -> str:
    """Return a time as every door of this server writes it: UTC, six fraction digits, `Z`."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
