"""The admin's first page: turns, problems and figures, with links to the lists."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.db import connection
from django.db.models import Count, Model, QuerySet, Sum
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from conversations.engines import durability
from conversations.models import Conversation, Event, GuardRepair, VerificationFinding
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
    Workspace,
)
from sessions_app.operation import problems as operation
from sessions_app.operation.figures import COUNTED_MAX, Figures
from sessions_app.operation.problems import OperatorProblem, ProblemKind

SLOW_MS = 250.0

OfModel = Callable[[type[Model]], bool]


class OverviewFigure(NamedTuple):
    """A figure with its title and a link to the list of what it counts."""

    title: str
    value: str
    link: str | None = None
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningTurn:
    conversation: SafeString
    owner: str
    age: str
    progress: str  # the time since the last sign of it
    process: str
    is_stalled: bool


class FigureGroup(NamedTuple):
    title: str
    figures: list[OverviewFigure]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemCard:
    """A problem with its advice and a link to where staff solve it."""

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
"""The list in which staff act on a problem, or see more of it."""


def problems(found: Figures, may_view: OfModel) -> list[ProblemCard] | None:
    """Return the problems that the visitor may see; None for a visitor who may see none of any kind."""
    allowed = {kind for kind, (model, *_) in _PLACES.items() if may_view(model)}
    if not allowed:
        return None
    return [_card(each, found.at) for each in operation.problems(found) if each.kind in allowed]


def _card(problem: OperatorProblem, now: datetime) -> ProblemCard:
    model, query, text = _PLACES[problem.kind]
    link = f"{cells.list_of(model)}{query}"
    if problem.conversation is not None:  # one alone: its page has what a list of one would not
        link = f"{cells.list_of(Conversation)}?{urlencode({'q': problem.conversation})}"
        text = "Open the conversation"
    lasts = cells.lasting(now - problem.since) if problem.since else ""
    # Between backquotes there is code.
    parts = enumerate(problem.advice.split("`"))
    advice = format_html_join("", "{}", ((cells.code(part) if odd % 2 else part,) for odd, part in parts))
    return ProblemCard(problem=problem, advice=advice, lasts=lasts, link=link, link_text=text)


def groups(found: Figures, may_view: OfModel) -> list[FigureGroup]:
    """Return the figures that the visitor may see."""
    now = timezone.now()
    shown = [
        FigureGroup("Agents", _agents(now) if may_view(AgentLoop) else []),
        FigureGroup("Traffic", list(_traffic(found, now, may_view))),
        FigureGroup("Server", list(_server(now)) if may_view(AgentLoop) else []),
        FigureGroup("Installation", list(_installation(found, may_view))),
    ]
    return [group for group in shown if group.figures]


def turns() -> list[RunningTurn]:
    """Return the turns that run, the one with the least recent progress first."""
    now = timezone.now()
    loops: Any = AgentLoop.objects.playing().with_progress()  # the checker does not see what it adds
    shown = loops.order_by("progress_at", "pk").select_related("conversation__owner")[:10]
    return [_turn(loop, now) for loop in shown]


def _turn(loop: Any, now: datetime) -> RunningTurn:
    return RunningTurn(
        conversation=cells.link(loop.conversation),
        owner=loop.conversation.owner.get_username(),
        age=cells.lasting(now - loop.updated_at),
        progress=cells.lasting(now - loop.progress_at),
        process=cells.process(loop.owner_pid, loop.owner_host) or "",
        is_stalled=loop.progress_at <= AgentLoop.objects.stalled_before(now),
    )


def _agents(now: datetime) -> list[OverviewFigure]:
    loops, at = AgentLoop.objects, cells.list_of(AgentLoop)
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


def _traffic(found: Figures, now: datetime, may_view: OfModel) -> Iterator[OverviewFigure]:
    if may_view(Conversation):
        rate = events_per_minute(now)
        yield OverviewFigure("Events per minute", rate, link=cells.list_of(Conversation))
    if may_view(Connection):
        link = f"{cells.list_of(Connection)}?presence=present"
        yield _counted("Open connections", Connection.objects.present(), link)
    if may_view(Delivery):
        at = cells.list_of(Delivery)
        oldest = found.undelivered.since
        late = Delivery.objects.failing()
        lag = cells.lasting(now - oldest) if oldest else "No pending deliveries"
        yield OverviewFigure("Webhook lag", lag, link=f"{at}?pending=yes")
        yield _counted("Failing deliveries", late, f"{at}?failing=yes", is_bad=True)


def events_per_minute(now: datetime) -> str:
    """Return the number of events of the last minute; above COUNTED_MAX, an estimate from the pace."""
    # No index has the times of events: the newest ones are read, at most COUNTED_MAX.
    times = list(Event.objects.order_by("-pk").values_list("received_at", flat=True)[:COUNTED_MAX])
    recent = [moment for moment in times if moment > now - timedelta(minutes=1)]
    if len(recent) < COUNTED_MAX:
        return cells.number(len(recent))
    span_s = max((now - recent[-1]).total_seconds(), 0.001)  # a clock that was put back, or one burst
    return f"about {cells.number(round(COUNTED_MAX / span_s) * 60)}"


def _server(now: datetime) -> Iterator[OverviewFigure]:
    database = measures.database_ms()
    yield OverviewFigure("Database answers in", cells.milliseconds(database), is_bad=database > SLOW_MS)
    yield _hints()
    if sentence := durability.of_file(connection):
        yield OverviewFigure("Acknowledged events are missing", sentence, is_bad=True)
    if durability.of_library(connection):
        title = "SQLite, which can lose a commit before 3.51.3"
        yield OverviewFigure(title, sqlite3.sqlite_version, is_bad=True)
    # A guard that was repaired had been removed by hand, which operators must learn of.
    lately = GuardRepair.objects.filter(repaired_at__gt=now - timedelta(days=30))
    if (repair := lately.order_by("-pk").first()) is not None:
        value = f"{cells.lasting(now - repair.repaired_at)} ago: {repair.guards}"
        yield OverviewFigure("Guards repaired", value, is_bad=True)
    yield OverviewFigure("Database size", cells.size(measures.database_bytes()))
    yield from _workspaces()
    free, total = measures.disk()
    # SQLite needs room for its log, and a backup as much as the database.
    is_bad = free < total / 10
    yield OverviewFigure("Free on the data disk", f"{cells.size(free)} of {cells.size(total)}", is_bad=is_bad)


def _workspaces() -> Iterator[OverviewFigure]:
    """Yield how much the workspaces hold, and the room for them."""
    held = Workspace.objects.aggregate(number=Count("pk"), bytes=Sum("bytes"))
    value = f"{cells.size(held['bytes'] or 0)} in {cells.counted(held['number'], 'workspace')}"
    yield OverviewFigure("Files of conversations", value)
    free, total = measures.disk_of_workspaces()
    # Of a large disk a tenth is enough; of a small one, less than what one workspace may hold is too little.
    is_bad = free < max(total / 10, 1_000_000_000)
    value = f"{cells.size(free)} of {cells.size(total)}"
    yield OverviewFigure("Free for files of conversations", value, is_bad=is_bad)


def _installation(found: Figures, may_view: OfModel) -> Iterator[OverviewFigure]:
    if may_view(ProcessRecord):
        link = cells.list_of(ProcessRecord)
        for role in ProcessRole:
            if role is ProcessRole.SERVER or settings.CONFIGURATION.is_clustered:
                value = cells.number(found.presence.count(role))
                yield OverviewFigure(f"{role.capitalize()}s that run", value, link=link)
        since = found.unanswered.since
        value = cells.lasting(found.at - since) if since else "None"
        yield OverviewFigure("Oldest unanswered message", value)
    if may_view(BackupRecord):
        newest = {"Newest backup": found.backup, "Newest verified backup": found.verified_backup}
        for title, record in newest.items():
            value = f"{cells.lasting(found.at - record.ended_at)} ago" if record else "Never"
            yield OverviewFigure(title, value, link=cells.list_of(BackupRecord))


def _hints() -> OverviewFigure:
    title = "Redis delivery time"
    try:
        took = measures.hints_ms()
    except LookupError:
        return OverviewFigure(title, "Redis is not used")
    if took is None:
        return OverviewFigure(title, "No answer", is_bad=True)
    return OverviewFigure(title, cells.milliseconds(took), is_bad=took > SLOW_MS)


def _counted(title: str, rows: QuerySet[Any], link: str, *, is_bad: bool = False) -> OverviewFigure:
    """Return the number of these rows, counted up to COUNTED_MAX; `is_bad` if there is any."""
    count = len(rows.order_by().values_list("pk")[: COUNTED_MAX + 1])
    value = cells.bounded(count, COUNTED_MAX)
    return OverviewFigure(title, value, link=link, is_bad=is_bad and count > 0)


class DamageBanner(NamedTuple):
    """The words about damage, and links to the conversations with it, the newest damage first."""

    text: str
    links: list[SafeString]


def damage_banner() -> DamageBanner | None:
    """Return the banner about damage that was found and is not repaired; None without damage."""
    newest = list(VerificationFinding.objects.order_by("-pk").values_list("conversation")[: COUNTED_MAX + 1])
    if not newest:
        return None
    count = len(newest)
    places = f"{cells.bounded(count, COUNTED_MAX)} place{'' if count == 1 else 's'}"
    pks = list(dict.fromkeys(pk for (pk,) in newest if pk is not None))[: cells.NAMED_MAX]
    rows = Conversation.objects.in_bulk(pks)
    return DamageBanner(f"The store is damaged in {places}.", [cells.link(rows[pk]) for pk in pks])
