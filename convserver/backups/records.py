"""What each run of `convserver backup` leaves in the store that it is of, for the operator to see."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.db import Error
from django.utils import timezone

from convserver.backups.failures import reason
from sessions_app.models import BackupOutcome, BackupRecord


class NotRecorded(Exception):
    """The store does not take the record; the backup is what it is."""


@contextmanager
def recorded(directory: Path) -> Iterator[BackupRecord]:
    """Store a record at the end of the block, which fills it in; what ends the block with an error failed.

    Raise NotRecorded if the block succeeds and its record cannot be stored.
    """
    # A failure unless the block says otherwise, so that an interruption at any place is one.
    record = BackupRecord(
        began_at=timezone.now(),
        host=socket.gethostname(),
        place=str(directory.absolute()),
        outcome=BackupOutcome.FAILED,
        detail="It was interrupted.",
    )
    detail_max = 2_000
    try:
        yield record
    except BaseException as error:
        if record.outcome == BackupOutcome.FAILED and str(error):
            record.detail = str(error)[:detail_max]
        with suppress(Error):  # the error that goes on is more important
            _store(record)
        raise
    try:
        _store(record)
    except Error as error:
        raise NotRecorded(f"The backup is not recorded in the store: {reason(error)}.") from error


def _store(record: BackupRecord) -> None:
    BackupRecord.objects.old().delete()
    record.ended_at = timezone.now()
    record.save(force_insert=True)
