"""Agent loops: their processes, states and errors."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from conversations.models import Conversation
from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin, may_change, sections
from convserver.admin.cells import column, label
from convserver.admin.steering import SteeringAction, selected, steer_and_tell
from sessions_app.live.state_words import LOOP_WORDS, NOT_STARTED, WORDS, in_state, state_of_loop
from sessions_app.models import AgentLoop, AgentLoopQuerySet, ExecutionStatus, LoopStatus

# The colours of the statuses of loops and of agents, which share `running` and `error`.
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

PROBLEMS = [
    ("running", "Running"),
    ("stalled", "No progress for a minute"),
    ("failed", "Last turn failed in the last 24 hours"),
    ("stuck", "Last turn got stuck in the last 24 hours"),
]


def agent_name(loop: AgentLoop) -> str:
    """Return the last part of the agent's dotted path."""
    return loop.agent.rpartition(".")[2]


def _with_problem(rows: AgentLoopQuerySet, problem: str) -> AgentLoopQuerySet:
    if problem == "running":
        return rows.playing()
    narrowed = {"stalled": rows.stalled, "failed": rows.failed_lately, "stuck": rows.stuck_lately}
    return narrowed[problem](timezone.now())


@admin.register(AgentLoop)
class AgentLoopAdmin(ReadOnlyAdmin[AgentLoop]):
    """The loops of all conversations that were ever started; those of the newest conversations first."""

    list_display = (
        *("of", "owner", "loop_label", "agent_label"),
        *("process", "lease_in_list", "is_held_now", "problem"),
    )
    list_filter = (
        filters.form_of(
            status=filters.choice("Loop", [*LOOP_WORDS.items()], "status"),
            execution_status=filters.choice(
                "Agent state", [*WORDS.items()], lambda rows, state: rows.filter(in_state(state))
            ),
            problem=filters.choice("Turns", PROBLEMS, _with_problem),
            owner=filters.text("Owner", "conversation__owner__username"),
        ),
    )
    list_select_related = ("conversation", "conversation__owner")
    actions = ("start", "stop")
    fieldsets = sections(
        {
            "": (("of_conversation", "owner"), ("loop_status", "agent_status"), "agent", "error"),
            "Process": (("process", "is_held_now"), ("lease", "starts"), "refused"),
            "Turn": (("turn", "answers_through"), "decision_shown"),
            "Times": ("started", "changed"),
        }
    )

    def has_steer_permission(self, request: HttpRequest) -> bool:
        return super().has_steer_permission(request) or may_change(request, Conversation)

    @admin.action(description="Start the agents", permissions=["steer"])
    def start(self, request: HttpRequest, queryset: QuerySet[AgentLoop]) -> None:
        steer_and_tell(request, SteeringAction.START, selected(request, _conversations(queryset)))

    @admin.action(description="Stop the agents", permissions=["steer"])
    def stop(self, request: HttpRequest, queryset: QuerySet[AgentLoop]) -> None:
        steer_and_tell(request, SteeringAction.STOP, selected(request, _conversations(queryset)))

    of = column("Conversation", "conversation", lambda conversation: cells.narrow(str(conversation)))
    of_conversation = column("Conversation", "conversation", cells.link)
    owner = column("Owner", "conversation.owner.username")
    loop_status = column("Loop", lambda loop: LOOP_WORDS[loop.status])
    agent_status = column("Agent state", lambda loop: WORDS[state_of_loop(loop)])
    process = column("Process", lambda loop: cells.process(loop.owner_pid, loop.owner_host))
    lease_in_list = column("Reserved until (UTC)", "lease_expires_at", cells.stacked)
    lease = column("Reserved until (UTC)", "lease_expires_at", cells.moment)
    starts = column("Starts so far", "epoch")
    refused = column("Refused writes of replaced processes", "refused_writes")
    turn = column("Turn ID", lambda loop: cells.code(loop.turn_id) if loop.turn_id else None)
    answers_through = column(
        "Answers messages up to event", lambda loop: loop.turn_through if loop.turn_id else None
    )
    decision_shown = column("Decision", "decision", lambda accepted: "Accepted" if accepted else "Rejected")
    problem = column("Error", "error", cells.narrow)
    started = column("Started (UTC)", "started_at", cells.moment)
    changed = column("Changed (UTC)", "updated_at", cells.moment)

    @label("Loop", LOOP_LABELS)
    def loop_label(self, loop: AgentLoop) -> tuple[str, str]:
        return loop.status, LOOP_WORDS[loop.status]

    @label("Agent state", LOOP_LABELS)
    def agent_label(self, loop: AgentLoop) -> tuple[str, str]:
        state = state_of_loop(loop)
        return state, WORDS[state]

    @admin.display(description="Process alive")
    def is_held_now(self, loop: AgentLoop) -> str | None:
        # A stopped loop has no process, so that none is missing.
        return None if loop.status == LoopStatus.STOPPED else cells.yes_or_no(loop.is_held())


def _conversations(loops: QuerySet[AgentLoop]) -> QuerySet[Conversation]:
    return Conversation.objects.filter(pk__in=loops.order_by().values("pk"))
