"""Metrics besides verifications: numbers of this process, and figures of the installation.

Labels are names of routes, doors, states, and of models, which users choose; `conversations.counts`
bounds how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from django.db import connection, connections
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from conversations import counts, live
from conversations.counts import Counted
from conversations.engines.sqlite3 import turns
from sessions_app.live import presence
from sessions_app.models import NANOS, BackupOutcome, ProcessRole
from sessions_app.operation import figures, problems
from sessions_app.operation.figures import Figures, age_s

PREFIX = "convserver"


class CounterOf(NamedTuple):
    """The metric of a counter."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    unit: float = 1.0


COUNTERS = {
    Counted.REQUESTS: CounterOf("requests", "HTTP requests.", ("route", "method", "status")),
    Counted.APPENDED: CounterOf("appended_events", "Events that were stored."),
    Counted.SENT: CounterOf("socket_events", "Events that were sent to sockets.", ("door",)),
    Counted.QUOTA_REFUSALS: CounterOf("quota_refusals", "What a quota has refused.", ("quota",)),
    Counted.HINTS: CounterOf("hints", "Hints to and from other processes.", ("outcome",)),
    Counted.MODEL_CALLS: CounterOf("model_calls", "Calls of models.", ("model",)),
    Counted.MODEL_TOKENS: CounterOf("model_tokens", "Tokens of models.", ("model", "direction")),
    Counted.MODEL_NANODOLLARS: CounterOf(
        "model_cost_dollars", "Cost of models, as far as it is known.", ("model",), 1 / NANOS
    ),
    Counted.LOCK_TIMEOUTS: CounterOf("lock_timeouts", "Waits for a lock that were given up."),
}


class OwnNumbers(Collector):
    """The numbers of this process since its start, without the database."""

    def collect(self) -> Iterator[Metric]:
        for counted, shown in COUNTERS.items():
            yield _counter(shown, counts.numbers(counted))
        yield _durations()
        here = presence.doors_here()
        doors = {(door,): here[door] for door in ("native", "v0", "v1")}
        yield _gauge("open_sockets", "Open sockets of conversations.", ["door"], doors)
        is_away = live.hints_away_since() is not None
        yield _gauge("hints_away", "1 while hints of other processes do not arrive.", [], {(): is_away})
        yield from _pool() if connection.vendor == "postgresql" else _turns()


def _counter(shown: CounterOf, numbers: Mapping[tuple[str, ...], int]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{shown.name}", shown.text, labels=shown.labels)
    # A counter without labels is 0 from the start, so that a rate can be computed of its first event.
    for labels, number in (numbers or ({} if shown.labels else {(): 0})).items():
        family.add_metric(labels, number * shown.unit)
    return family


def _gauge(name: str, text: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def _durations() -> Metric:
    family = HistogramMetricFamily(
        f"{PREFIX}_request_duration_seconds", "How long HTTP requests took.", labels=["route"]
    )
    for route, (*intervals, total_s) in counts.durations().items():
        # Each bucket of Prometheus has all faster requests, too; ours have only their interval.
        bounds = (*map(str, counts.BOUNDS_S), "+Inf")
        family.add_metric([route], list(zip(bounds, accumulate(intervals), strict=True)), total_s)
    return family


def _pool() -> Iterator[Metric]:
    pool: Any = connections["default"].pool  # type: ignore[attr-defined]
    found = {} if pool is None else pool.get_stats()
    number = {(state,): found.get(f"pool_{state}", 0) for state in ("size", "available", "max")}
    yield _gauge("pool_connections", "Connections to PostgreSQL.", ["state"], number)
    waiting = {(): found.get("requests_waiting", 0)}
    yield _gauge("pool_waiting", "Threads that wait for a connection.", [], waiting)
    waited_s = found.get("requests_wait_ms", 0) / 1000
    yield from _once("pool_wait_seconds", "How long threads have waited for a connection.", waited_s)


def _turns() -> Iterator[Metric]:
    of_file = turns.of_file(str(connection.settings_dict["NAME"]))
    yield _gauge("writers_waiting", "Threads that wait to write to the file.", [], {(): of_file.waiting})
    yield from _once("writer_wait_seconds", "How long threads have waited to write.", of_file.waited_s)


def _once(name: str, text: str, value: float) -> Iterator[Metric]:
    yield CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)


class SharedFigures(Collector):
    """The figures of the installation, equal in each process and at most `figures.KEPT_S` old."""

    def collect(self) -> Iterator[Metric]:
        found = figures.gathered()
        kinds = {problem.kind for problem in problems.problems(found)}
        # Also the kinds without a problem: 0 says that it was looked for.
        shown = {(kind.value,): kind in kinds for kind in problems.ProblemKind}
        yield _gauge("problem", "1 while the admin's first page shows such a problem.", ["kind"], shown)
        yield from _processes_and_loops(found)
        yield from _backlogs(found)
        yield from _backups(found)


def _processes_and_loops(found: Figures) -> Iterator[Metric]:
    alive, gone = found.presence
    processes = {
        (role.value, state): sum(record.role == role for record in records)
        for role in ProcessRole
        for state, records in (("alive", alive), ("gone", gone))
    }
    yield _gauge("processes", "Servers and workers.", ["role", "state"], processes)
    loops = {(state,): number for state, number in found.loops.items()}
    yield _gauge("loops", "Agent loops that exist, by what they do.", ["state"], loops)


def _backlogs(found: Figures) -> Iterator[Metric]:
    now = found.at
    values: Iterable[tuple[str, str, float]] = (
        ("stalled_loops", "Turns without progress for a minute.", found.stalled.count),
        ("unanswered_conversations", "Conversations that no loop works on.", found.unanswered.count),
        ("oldest_unanswered_seconds", "Age of the oldest such message.", age_s(found.unanswered.since, now)),
        ("oldest_undelivered_seconds", "Webhook lag.", age_s(found.undelivered.since, now)),
        ("failing_deliveries", "Conversations of which a delivery fails.", found.failing.count),
        ("held_locks", "Locks and statements that last too long.", len(found.waits)),
        (
            "longest_lock_seconds",
            "Since when the first of them.",
            max((w.seconds for w in found.waits), default=0),
        ),
    )
    for name, text, value in values:
        yield _gauge(name, text, [], {(): value})


def _backups(found: Figures) -> Iterator[Metric]:
    """Yield the metrics of backups; a store without one has no times."""
    last, newest, verified = found.last_backup, found.backup, found.verified_backup
    has_failed = last is not None and (last.outcome != BackupOutcome.MADE or bool(last.detail))
    yield _gauge("backup_failed", "1 if the last backup failed or is damaged.", [], {(): has_failed})
    times: dict[str, tuple[str, float | None]] = {
        "backup_end_timestamp_seconds": (
            "When the newest backup ended, in seconds since 1970.",
            newest.ended_at.timestamp() if newest else None,
        ),
        "backup_duration_seconds": ("How long it took.", newest.duration.total_seconds() if newest else None),
        "backup_size_bytes": ("How large it is.", newest.size if newest else None),
        "backup_verified_timestamp_seconds": (
            "When the newest verified backup ended, in seconds since 1970.",
            verified.ended_at.timestamp() if verified else None,
        ),
    }
    for name, (text, value) in times.items():
        yield _gauge(name, text, [], {} if value is None else {(): value})
