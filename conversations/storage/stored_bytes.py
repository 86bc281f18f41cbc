"""The bytes of events that each user has stored: counted behind the log, and checked in memory.

An append counts nothing in the database. One cursor over all events (StorageProgress) marks how far the
totals have come, as for the search index. Each process adds what it has admitted itself, so an append needs
no query.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from conversations.engines.watermark import EventHorizon
from conversations.models import Event, StorageProgress, StoredBytes

STEP_EVENTS = 2_000  # at most this many events are counted in one transaction
STEPS = 10  # at most this many steps are made in one round; an old log is counted over many rounds


def count(watermark: EventHorizon) -> bool:
    """Count the next events into the totals of their owners; return whether none is left.

    If several processes do this at once, one of them stores its totals.
    """
    through = StorageProgress.objects.get_or_create(pk=1)[0].through
    if through >= watermark.settled:
        return True
    last = int(min(_end_of(through, STEP_EVENTS), watermark.settled))
    with transaction.atomic():
        if StorageProgress.objects.filter(pk=1, through=through).update(through=last):
            # Read while the cursor is locked: of what a purge removes, either both know or neither.
            for owner_pk, size in Event.objects.filter(pk__gt=through, pk__lte=last).bytes_by_owner():
                StoredBytes.objects.get_or_create(owner_id=owner_pk)
                StoredBytes.objects.filter(owner_id=owner_pk).update(total=F("total") + size)
    return last >= watermark.settled


def discount(owner_pk: int, removed: Iterable[tuple[int, int]]) -> None:
    """Subtract events that the running transaction has removed, keys and bytes, from their owner's total."""
    progress = StorageProgress.objects.select_for_update().filter(pk=1).first()
    through = progress.through if progress is not None else 0
    size = sum(size for key, size in removed if key <= through)
    if size:
        StoredBytes.objects.filter(owner_id=owner_pk).update(total=Greatest(F("total") - size, 0))


def _end_of(through: int, events: int) -> float:
    """Return the key of the last of this many events after a place; infinity if there are fewer."""
    keys = Event.objects.filter(pk__gt=through).order_by("pk").values_list("pk", flat=True)
    return next(iter(keys[events - 1 : events]), math.inf)


def totals(owner_pks: Collection[int]) -> dict[int, int]:
    """Return the bytes of these users, with the uncounted events if they are few."""
    with transaction.atomic():  # the cursor stays where it is meanwhile
        progress = StorageProgress.objects.select_for_update().filter(pk=1).first()
        through = progress.through if progress is not None else 0
        found = dict.fromkeys(owner_pks, 0)
        found |= StoredBytes.objects.filter(owner_id__in=owner_pks).values_list("owner_id", "total")
        uncounted = Event.objects.filter(pk__gt=through)
        end = _end_of(through, STEP_EVENTS * STEPS)
        countable = uncounted if end == math.inf else uncounted.filter(pk__lte=end)
        for owner_pk, size in countable.bytes_by_owner():
            if owner_pk in found:
                found[owner_pk] += size
    return found


def counted(owner_pk: int) -> tuple[int, bool]:
    """Return the counted bytes of a user, and whether that is all; wait for no lock.

    Add uncounted events if they are at most STEP_EVENTS.
    """
    through = StorageProgress.objects.filter(pk=1).values_list("through", flat=True).first() or 0
    total = StoredBytes.objects.filter(owner_id=owner_pk).values_list("total", flat=True).first() or 0
    if _end_of(through, STEP_EVENTS) != math.inf:
        return total, False
    return total + dict(Event.objects.filter(pk__gt=through).bytes_by_owner()).get(owner_pk, 0), True


class _Use:
    __slots__ = ("fresh", "stored")

    def __init__(self) -> None:
        self.stored = 0  # bytes in the database, when they were last read
        self.fresh = 0  # bytes admitted here since then


class Meter:
    """The bytes of users who add events in this process; thread-safe.

    Other processes' bytes are known after the next `refresh`, so until then users may exceed the limit by
    what they add there. A user whom this process does not know yet is admitted once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[int, _Use] = {}
        self._horizon = EventHorizon()
        self.has_news = False  # whether anything was admitted since the last `refresh`

    def take(self, owner_pk: int, size: int, *, limit: int) -> int | None:
        """Count `size` more bytes if the limit allows it, otherwise return the bytes used before."""
        with self._lock:
            use = self._uses.setdefault(owner_pk, _Use())
            used = use.stored + use.fresh
            if used + size > limit:
                return used
            use.fresh += size
            self.has_news = True
        return None

    def refresh(self) -> bool:
        """Count what was added, and read the totals; return whether all events are counted."""
        self.has_news = False
        self._horizon.look()
        is_complete = any(count(self._horizon) for _ in range(STEPS))
        with self._lock:
            admitted = {owner_pk: use.fresh for owner_pk, use in self._uses.items()}
        found = totals(admitted)
        with self._lock:
            for owner_pk, fresh in admitted.items():
                use = self._uses[owner_pk]
                use.stored, use.fresh = found[owner_pk], use.fresh - fresh
        return is_complete and self._horizon.settled >= self._horizon.newest
