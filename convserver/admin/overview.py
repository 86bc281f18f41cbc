"""The admin's first page: what runs, hangs and has failed, and how the server is, with ways to the lists."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db import connection
from django.db.models import Model, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from conversations.engines import durability
from conversations.models import Conversation, Event, GuardRepair
from convserver.admin import cells, measures
from sessions_app.live.state_words import in_state
from sessions_app.models import (
    AgentLoop,
    BackupRecord,
    Connection,
    Delivery,
    ExecutionStatus,
    ProcessRecord,
    ProcessRole,
)
from sessions_app.operation import problems as operation
from sessions_app.operation.figures import Figures
from sessions_app.operation.problems import OperatorProblem, ProblemKind

TURNS_SHOWN = 10
COUNTED_MAX = 1000
"""More than this are not counted: the figure says so."""
SLOW_MS = 250.0
DISK_FREE_MIN = 0.1
REPAIRS_SHOWN = timedelta(days=30)
"""Guards that were put back are told for this long."""

OfModel = Callable[[type[Model]], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number, what it counts, and where that is listed."""

    title: str
    value: str
    link: str | None = None
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn that runs."""

    conversation: SafeString
    owner: str
    age: str
    progress: str
    """How long ago something last came of it."""
    process: str
    is_stalled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Figures that belong together."""

    title: str
    figures: list[Figure]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemCard:
    """One thing that is wrong, and the way to where it is mended."""

    problem: OperatorProblem
    advice: SafeString
    lasts: str
    link: str
    link_text: str


_PLACES: dict[ProblemKind, tuple[type[Model], str, str]] = {
    ProblemKind.STALLED: (AgentLoop, "?problem=stalled", "Open these loops"),
    ProblemKind.GONE: (ProcessRecord, "", "Open processes"),
    ProblemKind.WAITING: (ProcessRecord, "", "Open processes"),
    ProblemKind.FAILING: (Delivery, "?failing=yes", "Open failing deliveries"),
    ProblemKind.UNDELIVERED: (Delivery, "?pending=yes", "Open pending deliveries"),
    ProblemKind.LOCKED: (ProcessRecord, "", "Open processes"),
    ProblemKind.BACKUP: (BackupRecord, "", "Open backups"),
}
"""The list where one acts, or sees more."""


def problems(found: Figures, may_view: OfModel) -> list[ProblemCard] | None:
    """Return what is wrong as far as the visitor may see it; None for who may see none of it."""
    allowed = {kind for kind, (model, *_) in _PLACES.items() if may_view(model)}
    if not allowed:
        return None
    return [_card(each, found.at) for each in operation.problems(found) if each.kind in allowed]


def _card(problem: OperatorProblem, now: datetime) -> ProblemCard:
    model, query, text = _PLACES[problem.kind]
    link = f"{_list_of(model)}{query}"
    if problem.conversation is not None:
        link = f"{_list_of(Conversation)}?{urlencode({'q': problem.conversation})}"
        text = "Open the conversation"
    lasts = lasting(now - problem.since) if problem.since else ""
    advice = _with_code(problem.advice)
    return ProblemCard(problem=problem, advice=advice, lasts=lasts, link=link, link_text=text)


def _with_code(text: str) -> SafeString:
    """Return a text with what is between backquotes as code."""
    parts = enumerate(text.split("`"))
    return format_html_join("", "{}", ((cells.code(part) if odd % 2 else part,) for odd, part in parts))


def groups(found: Figures, may_view: OfModel) -> list[Group]:
    """Return the figures that the visitor may see."""
    now = timezone.now()
    shown = [
        Group(title="Agents", figures=_agents(now) if may_view(AgentLoop) else []),
        Group(title="Traffic", figures=list(_traffic(found, now, may_view))),
        Group(title="Server", figures=_server(now) if may_view(AgentLoop) else []),
        Group(title="Installation", figures=list(_installation(found, may_view))),
    ]
    return [group for group in shown if group.figures]


def turns() -> list[Turn]:
    """Return the turns that run, those first from which nothing has come for longest."""
    now = timezone.now()
    loops: Any = AgentLoop.objects.playing().with_progress()  # the checker does not see what it adds
    shown = loops.order_by("progress_at", "pk").select_related("conversation__owner")[:TURNS_SHOWN]
    return [_turn(loop, now) for loop in shown]


def _turn(loop: Any, now: datetime) -> Turn:
    return Turn(
        conversation=cells.link(loop.conversation),
        owner=loop.conversation.owner.get_username(),
        age=lasting(now - loop.updated_at),
        progress=lasting(now - loop.progress_at),
        process=f"{loop.owner_pid} on {loop.owner_host.partition(' ')[0]}" if loop.owner_pid else "",
        is_stalled=loop.progress_at <= AgentLoop.objects.stalled_before(now),
    )


def _agents(now: datetime) -> list[Figure]:
    loops, at = AgentLoop.objects, _list_of(AgentLoop)
    waiting = loops.filter(in_state(ExecutionStatus.WAITING_FOR_CONFIRMATION))
    stalled, failed, stuck = loops.stalled(now), loops.failed_lately(now), loops.stuck_lately(now)
    return [
        _counted("Running turns", loops.playing(), f"{at}?problem=running"),
        _counted("No progress for a minute", stalled, f"{at}?problem=stalled", is_bad=True),
        _counted("Agents that need approval", waiting, f"{at}?execution_status=waiting_for_confirmation"),
        _counted(
            "Agents whose last turn failed in the last 24 hours", failed, f"{at}?problem=failed", is_bad=True
        ),
        _counted(
            "Agents whose last turn got stuck in the last 24 hours", stuck, f"{at}?problem=stuck", is_bad=True
        ),
    ]


def _traffic(found: Figures, now: datetime, may_view: OfModel) -> Iterator[Figure]:
    if may_view(Conversation):
        rate = events_per_minute(now)
        yield Figure(title="Events per minute", value=rate, link=_list_of(Conversation))
    if may_view(Connection):
        link = f"{_list_of(Connection)}?presence=present"
        yield _counted("Open connections", Connection.objects.present(), link)
    if may_view(Delivery):
        at = _list_of(Delivery)
        oldest = found.undelivered.since
        late = Delivery.objects.failing()
        lag = lasting(now - oldest) if oldest else "No pending deliveries"
        yield Figure(title="Webhook lag", value=lag, link=f"{at}?pending=yes")
        yield _counted("Failing deliveries", late, f"{at}?failing=yes", is_bad=True)


def events_per_minute(now: datetime) -> str:
    """Return how many events came in during the last minute; of many, how many it would be at this pace.

    No index has their times, so the newest are looked at, and no more of them than COUNTED_MAX.
    """
    times = list(Event.objects.order_by("-pk").values_list("received_at", flat=True)[:COUNTED_MAX])
    recent = [moment for moment in times if moment > now - timedelta(minutes=1)]
    if len(recent) < COUNTED_MAX:
        return cells.number(len(recent))
    span_s = max((now - recent[-1]).total_seconds(), 0.001)
    return f"about {cells.number(round(COUNTED_MAX / span_s) * 60)}"


def _server(now: datetime) -> list[Figure]:
    free, total = measures.disk()
    database = measures.database_ms()
    return [
        Figure(title="Database answers in", value=milliseconds(database), is_bad=database > SLOW_MS),
        _hints(),
        *_missing(),
        *_library(),
        *_repairs(now),
        Figure(title="Database size", value=size(measures.database_bytes())),
        Figure(
            title="Free on the data disk",
            value=f"{size(free)} of {size(total)}",
            is_bad=free < total * DISK_FREE_MIN,
        ),
    ]


def _installation(found: Figures, may_view: OfModel) -> Iterator[Figure]:
    if may_view(ProcessRecord):
        link = _list_of(ProcessRecord)
        for role in ProcessRole:
            if role is ProcessRole.SERVER or settings.CONFIGURATION.is_clustered:
                value = cells.number(found.presence.count(role))
                yield Figure(title=f"{role.capitalize()}s that run", value=value, link=link)
        since = found.unanswered.since
        value = lasting(found.at - since) if since else "None"
        yield Figure(title="Oldest unanswered message", value=value)
    if may_view(BackupRecord):
        link = _list_of(BackupRecord)
        for title, record in (
            ("Newest backup", found.backup),
            ("Newest verified backup", found.verified_backup),
        ):
            value = f"{lasting(found.at - record.ended_at)} ago" if record else "Never"
            yield Figure(title=title, value=value, link=link)


def _hints() -> Figure:
    title = "Redis delivery time"
    try:
        took = measures.hints_ms()
    except LookupError:
        return Figure(title=title, value="Redis is not used")
    if took is None:
        return Figure(title=title, value="No answer", is_bad=True)
    return Figure(title=title, value=milliseconds(took), is_bad=took > SLOW_MS)


def _missing() -> Iterator[Figure]:
    if sentence := durability.of_file(connection):
        yield Figure(title="Acknowledged events are missing", value=sentence, is_bad=True)


def _library() -> Iterator[Figure]:
    if durability.of_library(connection):
        title = "SQLite, which can lose a commit before 3.51.3"
        yield Figure(title=title, value=sqlite3.sqlite_version, is_bad=True)


def _repairs(now: datetime) -> Iterator[Figure]:
    """Say when guards were last put back, if that was lately: somebody had removed them."""
    lately = GuardRepair.objects.filter(repaired_at__gt=now - REPAIRS_SHOWN)
    if (repair := lately.order_by("-pk").first()) is not None:
        value = f"{lasting(now - repair.repaired_at)} ago: {repair.guards}"
        yield Figure(title="Guards repaired", value=value, is_bad=True)


def _counted(title: str, rows: QuerySet[Any], link: str, *, is_bad: bool = False) -> Figure:
    """Return a figure of how many these are, counted up to COUNTED_MAX; `is_bad` if any is."""
    count = len(rows.order_by().values_list("pk")[: COUNTED_MAX + 1])
    value = f"more than {cells.number(COUNTED_MAX)}" if count > COUNTED_MAX else cells.number(count)
    return Figure(title=title, value=value, link=link, is_bad=is_bad and count > 0)


def _list_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def lasting(time: timedelta) -> str:
    """Return a length of time in its two largest units."""
    seconds = max(int(time.total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def milliseconds(value: float) -> str:
    """Return a length of time that is short."""
    if value < 0.1:
        return "under 0.1 ms"
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def size(count: int) -> str:
    """Return a number of bytes in the largest unit that leaves at least one of it."""
    value = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit in ("bytes", "KB") else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
