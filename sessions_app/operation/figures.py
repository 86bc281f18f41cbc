"""The figures that the admin's first page, the probes and the metrics share, gathered for all at once.

Each is read by an index, whatever the store holds, and counts stop at COUNTED_MAX.
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
"""Figures that are younger are not gathered again."""
COUNTED_MAX = 1_000
LOOKED_AT = 20
"""The first message of this many conversations is looked for, of those that changed longest ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Something that waits: how many of it, and since when the oldest has waited."""

    count: int = 0
    """At most COUNTED_MAX."""
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """How the installation is at one moment."""

    at: datetime
    presence: Presence
    unanswered: Backlog
    """Conversations with a message that no loop works on; of many the first COUNTED_MAX are looked at."""
    loops: Mapping[str, int]
    """Loops that exist, by what they do."""
    stalled: Backlog
    """Turns without progress."""
    undelivered: Backlog
    """Conversations of which an endpoint has not got everything; its count is not looked for."""
    failing: Backlog
    """Those of them whose last delivery failed."""
    waits: Sequence[LockWait]
    backup: BackupRecord | None
    """The newest that can be restored, as far as is known."""
    last_backup: BackupRecord | None
    """The newest, be it that it failed."""
    verified_backup: BackupRecord | None


_gathering = threading.Lock()
_kept: tuple[float, Figures] | None = None


def latest() -> Figures | None:
    """Return the figures that this process gathered last, however old, without asking the database."""
    return None if _kept is None else _kept[1]


def gathered() -> Figures:
    """Return figures that are at most KEPT_S old; one thread gathers them for all."""
    global _kept
    with _gathering:
        if _kept is None or time.monotonic() - _kept[0] >= KEPT_S:
            _kept = (time.monotonic(), gather())
        return _kept[1]


def gather() -> Figures:
    """Read all figures."""
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
    """Count rows, and find the oldest."""
    moments = list(rows.order_by(moment).values_list(moment, flat=True)[:COUNTED_MAX])
    return Backlog(count=len(moments), since=moments[0] if moments else None)


def _loops() -> dict[str, int]:
    rows = AgentLoop.objects.filter(status__in=THERE).order_by().values_list("execution_status")
    return dict(rows.annotate(number=Count("pk")))


def _unanswered() -> Backlog:
    """Count what is to be answered and no loop has taken, or is about to after its present step."""
    held = Q(lasts("loop__lease_expires_at", LOOP_LEASE_S), loop__status__in=THERE)
    asked = Conversation.objects.unanswered().exclude(loop__execution_status__in=SUSPENDED).exclude(held)
    rows = list(asked.order_by("pk").values_list("updated_at", "pk")[:COUNTED_MAX])
    if not rows:
        return Backlog()
    pks = [pk for _, pk in sorted(rows)[:LOOKED_AT]]
    inputs = Event.objects.filter(
        conversation_id=OuterRef("pk"), seq__gt=OuterRef("answered_through"), is_input=True
    )
    first = Subquery(inputs.order_by("seq").values("received_at")[:1])
    oldest = Conversation.objects.with_pks(pks).annotate(asked_at=first)
    return Backlog(count=len(rows), since=oldest.aggregate(since=Min("asked_at"))["since"])


def _undelivered() -> Backlog:
    """Find since when something waits to be delivered, or to be noted for delivery."""
    oldest = Delivery.objects.pending().order_by("since").values_list("since", flat=True).first()
    position = Endpoint.objects.filter(enabled=True).aggregate(least=Min("event_position"))["least"]
    unnoted = None
    if position is not None:
        later = Event.objects.filter(pk__gt=position).order_by("pk")
        unnoted = later.values_list("received_at", flat=True).first()
    return Backlog(since=min((each for each in (oldest, unnoted) if each is not None), default=None))


def age_s(moment: datetime | None, now: datetime) -> float:
    """Return how long ago something was, in seconds; 0 for what is not."""
    return 0.0 if moment is None else max(timedelta(), now - moment).total_seconds()
