"""Keys that open one conversation on the agent face: derived, never stored (spec V1 §5).

A key is signed over the conversation, its day of issue and two counters: the rotations of the
conversation's key, and those of all of its owner's keys. It expires CONVSERVER_CONVERSATION_KEY_DAYS
after its last use, or after its issue if it was never used.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Subquery
from django.utils import timezone

from conversations.log.locks import unless_locked
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from conversations.server_log import ids_of, log_on_commit
from sessions_app.models import AccessRemoval, ApiToken, ConversationKey

PREFIX = "ck_"
COLUMNS = (
    "public_id",
    "access_key__rotation",
    "access_key__issued_on",
    "access_key__used_at",
    "owner_key_rotation",
)
"""The columns of `keyed` rows from which `key_in` derives a conversation's key."""
_COLUMNS = ("pk", "owner_id", "version", "owner__is_active", *COLUMNS)
# Other uses of SECRET_KEY derive other keys.
_PURPOSE = b"convserver conversation key"
_DAY = timedelta(days=1)
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)


class _Signed(NamedTuple):
    public_id: str
    issued_on: int
    rotation: int
    owner_rotation: int

    def mac(self, secret_key: str) -> str:
        text = f"{self.rotation} {self.owner_rotation} {self.issued_on} {self.public_id}".encode()
        derived = hmac.digest(secret_key.encode(), _PURPOSE, sha256)
        # Without `_`, at which `opened_by` divides a key.
        return (
            base64.urlsafe_b64encode(hmac.digest(derived, text, sha256))
            .decode()
            .rstrip("=")
            .replace("_", "-")
        )


def keyed(rows: ConversationQuerySet) -> ConversationQuerySet:
    """Add the columns of COLUMNS that the rows lack."""
    # By a subquery: a join could change the plan of a list's query.
    removal = AccessRemoval.objects.filter(pk=OuterRef("owner_id"))
    return rows.annotate(owner_key_rotation=Subquery(removal.values("key_rotation")))


def key_of(conversation: ConversationRef) -> str:
    """Return the key that opens this conversation until it is rotated or expires."""
    return key_in(keyed(Conversation.objects.with_pks([conversation.pk])).values(*COLUMNS).get())


def key_in(row: Mapping[str, Any]) -> str:
    """Return the key of COLUMNS, under the newest secret key: the one in use, or a new one."""
    now = timezone.now()
    issued_on = row["access_key__issued_on"] if _is_fresh(row["access_key__used_at"], now) else _day_of(now)
    signed = _signed(row, issued_on)
    return f"{PREFIX}{signed.public_id}_{issued_on:x}.{signed.mac(settings.SECRET_KEY)}"


def opened_by(text: str) -> ConversationRef | None:
    """Return the conversation of a key, if its owner is active; None for an invalid key."""
    if not text.startswith(PREFIX):
        return None
    public_id, _, signature = text.removeprefix(PREFIX).rpartition("_")
    day, _, mac = signature.partition(".")
    # PostgreSQL refuses a NUL in a text.
    if "\0" in public_id or (issued_on := _day_in(day)) is None:
        return None
    rows = keyed(Conversation.objects.active().with_public_ids([public_id]))
    lapsed = ApiToken.objects.lapsed().filter(user_id=OuterRef("owner_id"))
    row = rows.annotate(has_lapsed_token=Exists(lapsed)).values(*_COLUMNS, "has_lapsed_token").first()
    if row is None or not row["owner__is_active"]:
        return None
    if row["has_lapsed_token"]:  # that token may have read this key
        ApiToken.objects.end_lapsed()
        return opened_by(text)
    given, signed = mac.encode(errors="surrogatepass"), _signed(row, issued_on)
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    is_right = any(hmac.compare_digest(given, signed.mac(each).encode()) for each in keys)
    if not is_right or not _is_current(row, issued_on):
        return None
    _record_use(row, issued_on)
    return ConversationRef(row["pk"], public_id, row["owner_id"], row["version"])


def rotate(conversation: ConversationRef) -> str:
    """Invalidate the conversation's present key, also where it is in use; return the new one."""
    with transaction.atomic():
        ConversationKey.objects.bulk_create(
            [ConversationKey(conversation_id=conversation.pk)], ignore_conflicts=True
        )
        ConversationKey.objects.filter(pk=conversation.pk).update(
            rotation=F("rotation") + 1, issued_on=None, used_at=None
        )
        log_on_commit("Conversation key rotated", **ids_of(conversation))
        AccessRemoval.note(conversation.owner_id)
    return key_of(conversation)


def rotate_all(owner_id: int) -> None:
    """Invalidate the present keys of all of a user's conversations, also where they are in use."""
    with transaction.atomic():
        log_on_commit("Conversation keys rotated", owner=owner_id)
        AccessRemoval.note(owner_id, rotates_keys=True)


def _signed(row: Mapping[str, Any], issued_on: int) -> _Signed:
    return _Signed(
        row["public_id"],
        issued_on,
        row["access_key__rotation"] or 0,
        row["owner_key_rotation"] or 0,
    )


def _is_current(row: Mapping[str, Any], issued_on: int) -> bool:
    """Return whether a key issued on this day is valid.

    It is younger than the limit, or a key was used within the limit and this one is no older than the oldest
    key in use.
    """
    now = timezone.now()
    if _is_fresh(_FIRST_DAY + issued_on * _DAY, now):
        return True
    first_in_use = row["access_key__issued_on"]
    return (
        _is_fresh(row["access_key__used_at"], now) and first_in_use is not None and issued_on >= first_in_use
    )


def _is_fresh(moment: datetime | None, now: datetime) -> bool:
    days = settings.CONFIGURATION.conversation_key_days
    return moment is not None and (days is None or moment > now - days * _DAY)


def _record_use(row: Mapping[str, Any], issued_on: int) -> None:
    """Record the use, unless a recent one was recorded."""
    now = timezone.now()
    used_at, first_in_use = row["access_key__used_at"], row["access_key__issued_on"]
    # The last use of a conversation's key is stored at most this often: most reads must not write.
    use_recorded = timedelta(hours=6)
    if not _is_fresh(used_at, now) or first_in_use is None:
        first_in_use = issued_on
    elif issued_on >= first_in_use and used_at > now - use_recorded:
        return
    changes = {"used_at": now, "issued_on": min(issued_on, first_in_use)}
    with unless_locked():
        # Not after a rotation: the new key is not in use yet.
        known = ConversationKey.objects.filter(pk=row["pk"], rotation=row["access_key__rotation"] or 0)
        if not known.update(**changes):
            first = ConversationKey(conversation_id=row["pk"], **changes)
            ConversationKey.objects.bulk_create([first], ignore_conflicts=True)


def _day_of(moment: datetime) -> int:
    return (moment - _FIRST_DAY) // _DAY


def _day_in(text: str) -> int | None:
    """Return the day in a key; None for a future or invalid one."""
    if not text.isascii() or not text.isalnum() or len(text) > 6:
        return None
    try:
        day = int(text, 16)
    except ValueError:
        return None
    return day if day <= _day_of(timezone.now()) else None
