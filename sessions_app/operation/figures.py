"""The figures of the admin's first page, the probes and the metrics, gathered for all at once.

Each is read by an index, whatever the size of the store, and counts stop at COUNTED_MAX.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, OuterRef, Q, Subquery
from django.utils import timezone

from conversations.models import Conversation, Event
from sessions_app.models import (
    LOOP_LEASE_S,
    SUSPENDED,
    THERE,
    AgentLoop,
    BackupRecord,
    Delivery,
    Endpoint,
)
from sessions_app.operation import heartbeats, waits
from sessions_app.operation.heartbeats import Presence
from sessions_app.operation.waits import LockWait
from sessions_app.shared_clock import lasts

KEPT_S = 10.0
"""Younger figures are not gathered again."""
# A larger number is no worse a problem, and to count further would read the whole index.
COUNTED_MAX = 1_000
LOOKED_AT = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Waiting work: its number, and how long the oldest has waited."""

    count: int = 0
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    at: datetime
    presence: Presence
    unanswered: Backlog
    """Conversations with a message that no loop works on, among the first COUNTED_MAX."""
    loops: Mapping[str, int]
    """The existing loops, by what they do."""
    stalled: Backlog
    """Turns without progress."""
    undelivered: Backlog
    """Conversations that an endpoint has not completely got; they are not counted."""
    failing: Backlog
    """Those of them whose last delivery failed."""
    waits: Sequence[LockWait]
    backup: BackupRecord | None
    """The newest backup that can be restored, as far as known."""
    last_backup: BackupRecord | None
    """The newest backup, even a failed one."""
    verified_backup: BackupRecord | None


_gathering = threading.Lock()
_kept: tuple[float, Figures] | None = None


def latest() -> Figures | None:
    """Return the last gathered figures of this process, however old, without a query."""
    return None if _kept is None else _kept[1]


def gathered() -> Figures:
    """Return figures that are at most KEPT_S old; one thread gathers them for all."""
    global _kept
    with _gathering:  # probes, metrics and the admin ask at the same time; one query answers all
        if _kept is None or time.monotonic() - _kept[0] >= KEPT_S:
            _kept = (time.monotonic(), gather())
        return _kept[1]


def gather() -> Figures:
    now = timezone.now()
    backups = BackupRecord.objects
    return Figures(
        at=now,
        presence=heartbeats.presence(),
        unanswered=_unanswered(),
        loops=_loops(),
        stalled=_oldest(AgentLoop.objects.stalled(now), "progress_at"),
        undelivered=_undelivered(),
        failing=_oldest(Delivery.objects.failing(), "since"),
        waits=waits.found(),
        backup=backups.usable().first(),
        last_backup=backups.order_by("-pk").first(),
        verified_backup=backups.verified().first(),
    )


def _oldest(rows: Any, moment: str) -> Backlog:
    moments = list(rows.order_by(moment).values_list(moment, flat=True)[:COUNTED_MAX])
    return Backlog(count=len(moments), since=moments[0] if moments else None)


def _loops() -> dict[str, int]:
    rows = AgentLoop.objects.filter(status__in=THERE).order_by().values_list("execution_status")
    return dict(rows.annotate(number=Count("pk")))


def _unanswered() -> Backlog:
    """Count conversations with an unanswered input that no loop has taken, nor is about to take."""
    held = Q(lasts("loop__lease_expires_at", LOOP_LEASE_S), loop__status__in=THERE)
    asked = Conversation.objects.unanswered().exclude(loop__execution_status__in=SUSPENDED).exclude(held)
    rows = list(asked.order_by("pk").values_list("updated_at", "pk")[:COUNTED_MAX])
    if not rows:
        return Backlog()
    # The oldest message is in one of the conversations that changed longest ago; to read all logs takes long.
    pks = [pk for _, pk in sorted(rows)[:LOOKED_AT]]
    inputs = Event.objects.filter(
        conversation_id=OuterRef("pk"), seq__gt=OuterRef("answered_through"), is_input=True
    )
    first = Subquery(inputs.order_by("seq").values("received_at")[:1])
    oldest = Conversation.objects.with_pks(pks).annotate(asked_at=first)
    return Backlog(count=len(rows), since=oldest.aggregate(since=Min("asked_at"))["since"])


def _undelivered() -> Backlog:
    """Return since when something waits to be delivered, or to be recorded for delivery."""
    oldest = Delivery.objects.pending().order_by("since").values_list("since", flat=True).first()
    position = Endpoint.objects.filter(enabled=True).aggregate(least=Min("event_position"))["least"]
    # If no process records deliveries, events wait behind the position of an endpoint.
    unnoted = None
    if position is not None:
        later = Event.objects.filter(pk__gt=position).order_by("pk")
        unnoted = later.values_list("received_at", flat=True).first()
    return Backlog(since=min((each for each in (oldest, unnoted) if each is not None), default=None))


def age_s(moment: datetime | None, now: datetime) -> float:
    """Return how long ago a moment was, in seconds; 0 for None."""
    return 0.0 if moment is None else max(timedelta(), now - moment).total_seconds()
