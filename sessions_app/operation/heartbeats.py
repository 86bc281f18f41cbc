"""Heartbeats: each server and worker has a row with the time of its last sign of life."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models.functions import Now

from sessions_app.models import ProcessRecord, ProcessRole
from sessions_app.processes import is_gone, this_process

BEAT_S = 10.0


class Presence(NamedTuple):
    alive: Sequence[ProcessRecord]
    gone: Sequence[ProcessRecord]
    """Those that neither ended nor were seen lately, and that no later process of their host replaces."""

    def count(self, role: ProcessRole) -> int:
        return sum(record.role == role for record in self.alive)


def beat(role: ProcessRole) -> None:
    """Store that this process is alive; the first time, remove the rows of old ones."""
    process = this_process()
    if ProcessRecord.objects.of(process).update(seen_at=Now(), ended_at=None):
        return
    ProcessRecord.objects.old().delete()
    ProcessRecord.objects.create(
        role=role,
        **process._asdict(),
        version=str(settings.SPECTACULAR_SETTINGS["VERSION"]),
        began_at=Now(),
        seen_at=Now(),
    )


def end() -> None:
    ProcessRecord.objects.of(this_process()).update(seen_at=Now(), ended_at=Now())


def presence() -> Presence:
    """Return the processes that are alive and those that are gone, by one statement."""
    running = list(ProcessRecord.objects.running().with_age().order_by("seen_at"))
    alive = [record for record in running if is_alive(record)]
    # After a day its end is no news.
    gone = [record for record in running if record not in alive and record.silent_for < timedelta(hours=24)]
    return Presence(alive, _unreplaced(gone, alive))


def is_alive(record: ProcessRecord) -> bool:
    """Return whether a process `with_age` that has not ended is alive, as far as can be known."""
    # Its own heartbeat may be late, such as after the database was away.
    if record.process == this_process():
        return True
    # For processes of other hosts: on the same host an end is noticed at once.
    gone_after = timedelta(seconds=3 * BEAT_S)
    return record.silent_for < gone_after and not is_gone(record.process)


def _unreplaced(gone: Sequence[ProcessRecord], alive: Sequence[ProcessRecord]) -> list[ProcessRecord]:
    """Leave out processes that a later one with the same role on the same host replaces."""
    newcomers = sorted(alive, key=lambda record: record.began_at)
    left = []
    for record in gone:
        successor = next((each for each in newcomers if _replaces(each, record)), None)
        if successor is None:
            left.append(record)
        else:
            newcomers.remove(successor)
    return left


def _replaces(newcomer: ProcessRecord, gone: ProcessRecord) -> bool:
    # Elsewhere, or in another role, it is no restart; and one that was there before replaces nothing.
    is_alike = (newcomer.role, newcomer.host_name) == (gone.role, gone.host_name)
    return is_alike and newcomer.began_at >= gone.seen_at
