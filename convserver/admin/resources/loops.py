"""Agent loops: who runs which, for how long, and what went wrong."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from conversations.models import Conversation
from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin, may_change
from convserver.admin.filters import ANY, FormFilter, choice_field, text_field
from convserver.admin.steering import Action, selected, steer_and_tell
from convserver.admin.widgets import label
from sessions_app.live.state_words import LOOP_WORDS, NOT_STARTED, WORDS, in_state, state_of_loop
from sessions_app.models import AgentLoop, AgentLoopQuerySet, ExecutionStatus, LoopStatus

LOOP_LABELS: dict[str, str] = {
    NOT_STARTED: "",
    LoopStatus.STARTING: "info",
    LoopStatus.STOPPED: "",
    LoopStatus.RUNNING: "success",
    LoopStatus.ERROR: "danger",
    ExecutionStatus.IDLE: "",
    ExecutionStatus.PAUSED: "warning",
    ExecutionStatus.WAITING_FOR_CONFIRMATION: "warning",
    ExecutionStatus.FINISHED: "",
    ExecutionStatus.STUCK: "danger",
}
"""How a status of a loop or of its agent is coloured; `running` and `error` are both."""


PROBLEMS = [
    ("running", "Running"),
    ("stalled", "No progress for a minute"),
    ("failed", "Last turn failed in the last 24 hours"),
    ("stuck", "Last turn got stuck in the last 24 hours"),
]


def agent_name(loop: AgentLoop) -> str:
    """Return the last part of the agent's dotted path."""
    return loop.agent.rpartition(".")[2]


class LoopFilterForm(forms.Form):
    """What loops can be looked for by."""

    status = choice_field("Loop", [ANY, *LOOP_WORDS.items()])
    execution_status = choice_field("Agent state", [ANY, *WORDS.items()])
    problem = choice_field("Turns", [ANY, *PROBLEMS])
    owner = text_field("Owner")


class LoopFilter(FormFilter[AgentLoopQuerySet]):
    """Loops by status and owner."""

    form_class = LoopFilterForm

    def narrowed(self, rows: AgentLoopQuerySet, wanted: dict[str, Any]) -> AgentLoopQuerySet:
        """Return the loops with the wanted facts."""
        rows = _with_problem(rows, wanted.get("problem"))
        if "execution_status" in wanted:
            rows = rows.filter(in_state(wanted["execution_status"]))
        columns = {"owner": "conversation__owner__username", "status": "status"}
        return rows.filter(**{column: wanted[name] for name, column in columns.items() if name in wanted})


@admin.register(AgentLoop)
class AgentLoopAdmin(ReadOnlyAdmin[AgentLoop]):
    """The loops of all conversations that were ever started; those of the newest conversations first."""

    list_display = (
        "of",
        "owner",
        "loop_label",
        "agent_label",
        "process",
        "lease_in_list",
        "is_held_now",
        "problem",
    )
    list_filter = (LoopFilter,)
    list_select_related = ("conversation", "conversation__owner")
    actions = ("start", "stop")
    fieldsets = (
        (
            None,
            {"fields": (("of_conversation", "owner"), ("loop_status", "agent_status"), "agent", "error")},
        ),
        ("Process", {"fields": (("process", "is_held_now"), ("lease", "starts"), "refused")}),
        ("Turn", {"fields": (("turn", "answers_through"), "decision_shown")}),
        ("Times", {"fields": (("started", "changed"))}),
    )

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may start and stop agents."""
        return may_change(request, AgentLoop) or may_change(request, Conversation)

    @admin.action(description="Start the agents", permissions=["steer"])
    def start(self, request: HttpRequest, queryset: QuerySet[AgentLoop]) -> None:
        """Start the loops of the chosen conversations."""
        steer_and_tell(request, Action.START, selected(request, _conversations(queryset)))

    @admin.action(description="Stop the agents", permissions=["steer"])
    def stop(self, request: HttpRequest, queryset: QuerySet[AgentLoop]) -> None:
        """Stop the loops of the chosen conversations."""
        steer_and_tell(request, Action.STOP, selected(request, _conversations(queryset)))

    @admin.display(description="Conversation")
    def of(self, loop: AgentLoop) -> SafeString | None:
        """Whose loop it is."""
        return cells.narrow(str(loop.conversation))

    @admin.display(description="Conversation")
    def of_conversation(self, loop: AgentLoop) -> SafeString:
        """Whose loop it is, with the way there."""
        return cells.link(loop.conversation)

    @admin.display(description="Owner")
    def owner(self, loop: AgentLoop) -> str:
        """Whose conversation it is."""
        return loop.conversation.owner.get_username()

    @label("Loop", LOOP_LABELS)
    def loop_label(self, loop: AgentLoop) -> tuple[str, str]:
        """Whether it is there."""
        return loop.status, LOOP_WORDS[loop.status]

    @label("Agent state", LOOP_LABELS)
    def agent_label(self, loop: AgentLoop) -> tuple[str, str]:
        """What its agent does, in a word."""
        state = state_of_loop(loop)
        return state, WORDS[state]

    @admin.display(description="Loop")
    def loop_status(self, loop: AgentLoop) -> str:
        """Whether it is there, in words."""
        return LOOP_WORDS[loop.status]

    @admin.display(description="Agent state")
    def agent_status(self, loop: AgentLoop) -> str:
        """What its agent does, in words."""
        return WORDS[state_of_loop(loop)]

    @admin.display(description="Agent")
    def agent_shown(self, loop: AgentLoop) -> SafeString | None:
        """Who answers."""
        return cells.narrow(loop.agent, agent_name(loop))

    @admin.display(description="Process")
    def process(self, loop: AgentLoop) -> SafeString | None:
        """Which process holds it, or held it last."""
        if not loop.owner_pid:
            return None
        return cells.narrow(
            f"{loop.owner_pid} on {loop.owner_host}",
            f"{loop.owner_pid} on {loop.owner_host.partition(' ')[0]}",
        )

    @admin.display(description="Reserved until (UTC)")
    def lease_in_list(self, loop: AgentLoop) -> SafeString | None:
        """Until when it may write unless it renews."""
        return cells.stacked(loop.lease_expires_at)

    @admin.display(description="Reserved until (UTC)")
    def lease(self, loop: AgentLoop) -> SafeString | None:
        """Until when it may write unless it renews."""
        return cells.moment(loop.lease_expires_at)

    @admin.display(description="Process alive")
    def is_held_now(self, loop: AgentLoop) -> str | None:
        """Whether the process that holds it lives; nothing where none does."""
        return None if loop.status == LoopStatus.STOPPED else cells.yes_or_no(loop.is_held())

    @admin.display(description="Starts so far")
    def starts(self, loop: AgentLoop) -> int:
        """How often a process has taken it."""
        return loop.epoch

    @admin.display(description="Refused writes of replaced processes")
    def refused(self, loop: AgentLoop) -> int:
        """How often a process tried to write after another one had taken the loop."""
        return loop.refused_writes

    @admin.display(description="Turn ID")
    def turn(self, loop: AgentLoop) -> SafeString | None:
        """Which turn has begun and not ended."""
        return cells.code(loop.turn_id) if loop.turn_id else None

    @admin.display(description="Answers messages up to event")
    def answers_through(self, loop: AgentLoop) -> int | None:
        """Which input is the newest that the turn answers."""
        return loop.turn_through if loop.turn_id else None

    @admin.display(description="Decision")
    def decision_shown(self, loop: AgentLoop) -> str | None:
        """What was decided about the call that waits."""
        return None if loop.decision is None else "Accepted" if loop.decision else "Rejected"

    @admin.display(description="Error")
    def problem(self, loop: AgentLoop) -> SafeString | None:
        """What went wrong last."""
        return cells.narrow(loop.error)

    @admin.display(description="Started (UTC)")
    def started(self, loop: AgentLoop) -> SafeString | None:
        """When it was started last."""
        return cells.moment(loop.started_at)

    @admin.display(description="Changed (UTC)")
    def changed(self, loop: AgentLoop) -> SafeString | None:
        """When its row last changed."""
        return cells.moment(loop.updated_at)


def _with_problem(rows: AgentLoopQuerySet, problem: str | None) -> AgentLoopQuerySet:
    now = timezone.now()
    match problem:
        case "running":
            return rows.playing()
        case "stalled":
            return rows.stalled(now)
        case "failed":
            return rows.failed_lately(now)
        case "stuck":
            return rows.stuck_lately(now)
    return rows


def _conversations(loops: QuerySet[AgentLoop]) -> QuerySet[Conversation]:
    return Conversation.objects.filter(pk__in=loops.order_by().values("pk"))
