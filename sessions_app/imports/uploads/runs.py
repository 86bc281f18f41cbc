"""A user's imports: to begin one, to start it once its file is here, to cancel it, to forget it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from conversations import live
from conversations.dialects import columns
from conversations.storage import quotas
from sessions_app.imports.importer import LABELS_MAX
from sessions_app.imports.uploads import pieces
from sessions_app.imports.uploads.problems import (
    FileTooLarge,
    ImportNotFound,
    InvalidImport,
    NotTheSender,
    NotWhole,
    TooManyImports,
)
from sessions_app.imports.ways import WAYS
from sessions_app.models import ImportRun, ImportState
from sessions_app.storage import usage
from sessions_app.storage.attachments import safe_name

OPEN_MAX = 10
"""At most this many imports of one user have not ended."""
KEPT_MAX = 100
"""At most this many reports of one user are kept."""
NAME_MAX_BYTES = 240  # what file systems take
LABEL_MAX_LENGTH = 50
STARTED = "import"
"""The hint that there is something to import."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """How a file is to be imported."""

    format: str = ""
    """Empty for whichever it turns out to be."""
    labels: Sequence[str] = ()
    zone: str = "UTC"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewImport(Chosen):
    """A file to upload, and the options of its import."""

    file_name: str
    size: int
    """In bytes."""


def max_bytes() -> int:
    limit: int = settings.CONFIGURATION.import_max_mb * quotas.MB
    return limit


def begin(user_id: int, new: NewImport, *, by: int | None = None) -> ImportRun:
    """Create an import, of which the file can then be sent; `by` is the one who sends it for the user.

    Raise InvalidImport, FileTooLarge, and TooManyImports.
    """
    name = safe_name(new.file_name)
    _check(name, new)
    with transaction.atomic():
        usage.locked(user_id)  # so that two at once do not exceed the limit together
        _require_room(user_id, new.size)
        columns = _columns(new)
        run = ImportRun.objects.create(user_id=user_id, by_id=by, file_name=name, size=new.size, **columns)
    run.refresh_from_db()  # the database has set a time
    ended = ImportRun.objects.of(user_id).ended().order_by("-pk")
    if (last := ended.values_list("pk", flat=True)[KEPT_MAX : KEPT_MAX + 1].first()) is not None:
        ended.filter(pk__lte=last).delete()
    return run


def found(user_id: int, public_id: str) -> ImportRun:
    """Return an import that the user may see. Raise ImportNotFound."""
    run = ImportRun.objects.seen_by(user_id).filter(public_id=public_id).first()
    if run is None:
        raise ImportNotFound("Import not found.")
    return run


def found_by_sender(user_id: int, public_id: str) -> ImportRun:
    """Return an import whose file the user may send. Raise ImportNotFound and NotTheSender."""
    run = found(user_id, public_id)
    # Staff upload for others without a quota, which the owner must not use.
    if user_id != (run.by_id or run.user_id):
        raise NotTheSender("Staff send the file of this import for you. To send one yourself, begin another.")
    return run


def start(run: ImportRun, chosen: Chosen | None = None) -> None:
    """Start an import whose file is complete, with the described or `chosen` options.

    A second time changes nothing. Raise NotWhole and InvalidImport.
    """
    if chosen is not None:
        _check_chosen(chosen)
    rows = ImportRun.objects.filter(pk=run.pk, state=ImportState.UPLOADING, received=run.size)
    if rows.update(state=ImportState.WAITING, **(_columns(chosen) if chosen is not None else {})):
        live.tell_listeners({"kind": STARTED})
        return
    run.refresh_from_db()
    if run.state == ImportState.UPLOADING:
        raise NotWhole(f"{run.received} of {run.size} bytes have arrived. Send the rest first.")


def cancel(run: ImportRun) -> None:
    """Cancel an import; one that has ended stays as it is.

    One that runs ends after the conversation that it is at. What was imported stays.
    """
    # Before it runs, first: the update tells whether a process has taken it meanwhile.
    waiting = ImportRun.objects.filter(pk=run.pk, state__in=(ImportState.UPLOADING, ImportState.WAITING))
    if waiting.update(state=ImportState.CANCELLED, ended_at=timezone.now()):
        pieces.discard(run)
    else:
        ImportRun.objects.filter(pk=run.pk).running().update(is_cancelled=True)


def forget(run: ImportRun) -> None:
    """Remove an import that has ended, or whose file is still being sent; one that waits or runs stays."""
    rows = ImportRun.objects.filter(pk=run.pk)
    rows.filter(state=ImportState.UPLOADING).update(state=ImportState.CANCELLED, ended_at=timezone.now())
    if rows.ended().delete()[0]:  # no import begins again that has ended
        pieces.discard(run)


def tidy() -> None:
    """Remove abandoned uploads and files without an import; cancel imports whose user is gone."""
    abandoned_after = timedelta(hours=24)
    for run in ImportRun.objects.abandoned(abandoned_after):
        forget(run)
    for run in ImportRun.objects.open().filter(user__is_active=False):
        cancel(run)
    found = pieces.names()  # before it is asked for whom: what begins meanwhile stays
    needed = set[str]().union(*map(pieces.names_of, ImportRun.objects.open()))
    pieces.discard_directories(set(found) - needed)


def _check(name: str, new: NewImport) -> None:
    if len(name.encode()) > NAME_MAX_BYTES:
        raise InvalidImport("The name of the file is too long. Rename it.")
    if new.size < 1:
        raise InvalidImport("The file is empty.")
    if new.size > max_bytes():
        raise FileTooLarge(
            f"The file has {new.size:,} bytes, and the limit is {max_bytes():,}. The server's operator can "
            "raise it (CONVSERVER_IMPORT_MAX_MB), or import the file by a command."
        )
    _check_chosen(new)


def _check_chosen(new: Chosen) -> None:
    if new.format and new.format not in WAYS:
        raise InvalidImport(f"There is no format {new.format!r}. Choose one of: {', '.join(WAYS)}.")
    if len(new.labels) > LABELS_MAX:
        raise InvalidImport(f"An import gives at most {LABELS_MAX} labels.")
    if any(not label.strip() or len(label) > LABEL_MAX_LENGTH for label in new.labels):
        raise InvalidImport(f"A label has 1 to {LABEL_MAX_LENGTH} characters.")
    try:
        ZoneInfo(new.zone)
    except (ValueError, OSError, LookupError) as error:
        raise InvalidImport(f"{new.zone!r} is not a time zone; write it like Europe/Berlin.") from error


def _columns(chosen: Chosen) -> dict[str, Any]:
    labels = list(dict.fromkeys(map(columns.clean, chosen.labels)))
    return {"format": chosen.format, "labels": labels, "zone": chosen.zone}


def _require_room(user_id: int, size: int) -> None:
    _require_room_of_all(size)
    rows = ImportRun.objects.of(user_id).open()
    if rows.count() >= OPEN_MAX:
        raise TooManyImports(f"{OPEN_MAX} imports have not ended. Wait for one, or cancel one.")
    waiting = rows.aggregate(sum=Sum("size"))["sum"] or 0
    if waiting + size > max_bytes():
        raise TooManyImports(
            f"The files of imports that have not ended may have {max_bytes():,} bytes together, and have "
            f"{waiting:,} already. Wait for one, or cancel one."
        )


def _require_room_of_all(size: int) -> None:
    most: int = settings.CONFIGURATION.imports_open_max_mb * quotas.MB
    if not most:
        return
    waiting = ImportRun.objects.open().aggregate(sum=Sum("size"))["sum"] or 0
    if waiting + size > most:
        raise TooManyImports(
            "The files that all users import have no room for this one at the moment. Try again later; the "
            "server's operator can raise the limit (CONVSERVER_IMPORTS_OPEN_MAX_MB)."
        )
