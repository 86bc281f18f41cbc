"""Quotas on what users store: tokens, drafts and uploads.

Each change locks its user's totals until its transaction ends, so that two requests at once cannot exceed a
quota together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count
from typing import ClassVar, NamedTuple

from django.db import transaction
from django.db.models import Sum

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from conversations.storage import quotas, stored_bytes
from sessions_app.identity import open_sockets
from sessions_app.models import (
    TOKEN_NAME_MAX_LENGTH,
    ApiToken,
    Attachment,
    Draft,
    Grant,
    Usage,
    Workspace,
    size_of_draft,
)


class TokenNameTaken(ConversationError):
    """A valid token of the user has this name."""

    code: ClassVar[str] = "conflict"


def locked(user_pk: int) -> Usage:
    """Return the user's totals, locked until the running transaction ends."""
    row = Usage.objects.of(user_pk).locked().first()
    if row is None:
        Usage.objects.get_or_create(user_id=user_pk)  # another request may create it as well
        row = Usage.objects.locked().get(user_id=user_pk)
    if not row.is_counted:
        _count(row)
    return row


def add_upload(row: Usage, size: int) -> None:
    """Count an upload that was stored since the row was locked, or with a size below 0, one that was removed.

    Raise QuotaExceeded; what takes no room is always counted.
    """
    if size > 0:
        quotas.require_room("uploads_mb", row.uploaded_bytes, size, "bytes of uploads", "Upload less.")
    row.uploaded_bytes = max(row.uploaded_bytes + size, 0)
    row.save(update_fields=["uploaded_bytes"])


def change_draft(user_pk: int, conversation: ConversationRef | None, *, size: int) -> None:
    """Count a draft that will have this size in bytes, in the running transaction. Raise QuotaExceeded.

    A draft that gets no larger is always allowed.
    """
    row = locked(user_pk)
    before = Draft.objects.of(user_pk, conversation).values_list("size", flat=True).first() or 0
    added, grown = int(size > 0) - int(before > 0), size - before
    remedy = "Send a draft or empty it."
    if added > 0:
        quotas.require_room("drafts", row.drafts, added, "drafts", remedy)
    if grown > 0:
        quotas.require_room("drafts_mb", row.draft_bytes, grown, "bytes of drafts", remedy)
    if added or grown:
        row.drafts, row.draft_bytes = row.drafts + added, row.draft_bytes + grown
        row.save(update_fields=["drafts", "draft_bytes"])


def issue_token(user_pk: int, name: str, grant: Grant | None = None) -> tuple[ApiToken, str]:
    """Create a token for a user who asks for one: ApiToken.issue. Raise QuotaExceeded or TokenNameTaken."""
    with transaction.atomic():
        require_free_name(user_pk, name)
        require_room_for_token(user_pk)
        return ApiToken.issue(user_pk, name, grant)


def require_room_for_token(user_pk: int) -> None:
    """Raise QuotaExceeded if the user may not create one more token."""
    if limit := quotas.limit_of("tokens"):
        used = ApiToken.objects.valid().filter(user_id=user_pk)[:limit].count()
        quotas.require_room("tokens", used, 1, "API tokens", "Revoke one.")


def require_free_name(user_pk: int, name: str) -> None:
    """Keep a token's name free until the running transaction ends. Raise TokenNameTaken."""
    locked(user_pk)
    if ApiToken.objects.valid().filter(user_id=user_pk, name=name).exists():
        raise TokenNameTaken(
            f"There is a token named “{name}” already. Choose another name, or revoke that token."
        )


def free_name(user_pk: int, name: str) -> str:
    """Return this name, with a number if a valid token of the user has it.

    It stays free until the end of a transaction that has called `locked` before.
    """
    taken = set(ApiToken.objects.valid().filter(user_id=user_pk).values_list("name", flat=True))
    numbered = (f"{name[: TOKEN_NAME_MAX_LENGTH - 8]} {number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


class QuotaUse(NamedTuple):
    """What a user has used of a quota."""

    amount: int
    is_all: bool = True
    """False while the rest is still being counted."""


def use_of(user_pk: int) -> dict[str, QuotaUse]:
    """Return what a user has used of each quota that is set, by its name; bytes for those in MB."""
    row = Usage.objects.of(user_pk).first() or Usage(user_id=user_pk)
    uses: dict[str, Callable[[], int]] = {
        "sockets": lambda: open_sockets.number_of(user_pk),
        "tokens": lambda: ApiToken.objects.valid().filter(user_id=user_pk).count(),
        "drafts": lambda: row.drafts,
        "drafts_mb": lambda: row.draft_bytes,
        "uploads_mb": lambda: row.uploaded_bytes,
    }
    amounts = quotas.use_of_rates(user_pk)
    used = {quota: QuotaUse(amount) for quota, amount in amounts.items() if quotas.limit_of(quota)}
    used |= {quota: QuotaUse(read()) for quota, read in uses.items() if quotas.limit_of(quota)}
    if quotas.limit_of("stored_mb"):
        used["stored_mb"] = QuotaUse(*stored_bytes.counted(user_pk))
    return used


def _count(row: Usage) -> None:
    """Count what the user has stored so far; once, under the lock."""
    uploads = Attachment.objects.filter(conversation__owner_id=row.user_id)
    files = Workspace.objects.filter(conversation__owner_id=row.user_id)
    row.uploaded_bytes = (uploads.aggregate(sum=Sum("size"))["sum"] or 0) + (
        files.aggregate(sum=Sum("charged"))["sum"] or 0
    )
    drafts = Draft.objects.filter(user_id=row.user_id)
    for draft in drafts.filter(size=None).iterator(chunk_size=1):  # each may have megabytes of images
        Draft.objects.filter(pk=draft.pk).update(size=size_of_draft(draft.text, draft.images, draft.files))
    held = drafts.filter(size__gt=0)
    row.drafts, row.draft_bytes = held.count(), held.aggregate(sum=Sum("size"))["sum"] or 0
    row.is_counted = True
    row.save()
