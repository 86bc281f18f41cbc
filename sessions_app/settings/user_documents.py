"""JSON documents of a user, which clients read back as they stored them: profiles, and further settings."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from conversations.dialects import columns
from conversations.exceptions import ConversationError
from conversations.server_log import log_on_commit
from sessions_app.encryption import SecretUnreadable, seal
from sessions_app.models import DocumentKind, UserDocument

logger = logging.getLogger(__name__)

DOCUMENTS_MAX = 100  # of each kind
DOCUMENT_MAX_BYTES = 256 * 1024


class DocumentNotFound(ConversationError):
    """The user has no document of this kind and name."""

    code = "document_not_found"


class DocumentExists(ConversationError):
    """The user has another document of this kind and name."""

    code = "document_exists"


class DocumentRefused(ConversationError):
    """The document is too long, or there are too many."""

    code = "document_refused"


def document(user_id: int, kind: DocumentKind, name: str = "") -> dict[str, Any]:
    """Return a document. Raise DocumentNotFound, also for one that no key opens."""
    row = _named(user_id, kind, name).first()
    if row is None or (value := _opened(row)) is None:
        raise DocumentNotFound(f"There is no document {name!r}.")
    return value


def documents(user_id: int, kind: DocumentKind) -> dict[str, dict[str, Any]]:
    """Return the user's documents of a kind by name, in the order of names; without unreadable ones."""
    rows = UserDocument.objects.filter(user_id=user_id, kind=kind).order_by("name")
    return {row.name: value for row in rows if (value := _opened(row)) is not None}


@transaction.atomic
def store(user_id: int, kind: DocumentKind, value: dict[str, Any], *, name: str = "") -> None:
    """Store a document, in place of the one of the same kind and name. Raise DocumentRefused."""
    text = json.dumps(value)  # all ASCII: its characters are its bytes
    if len(text) > DOCUMENT_MAX_BYTES:
        raise DocumentRefused(f"A document may have {DOCUMENT_MAX_BYTES:,} bytes as JSON at the most.")
    _, is_new = UserDocument.objects.update_or_create(
        user_id=user_id, kind=kind, name=name, defaults={"sealed": seal(text)}
    )
    # Counted with the new one, which the refusal rolls back.
    if is_new and UserDocument.objects.filter(user_id=user_id, kind=kind).count() > DOCUMENTS_MAX:
        raise DocumentRefused(f"You can have at most {DOCUMENTS_MAX} of these. Delete one first.")
    log_on_commit("Document stored", user=user_id, kind=kind, name=name)


def rename(user_id: int, kind: DocumentKind, name: str, *, new_name: str) -> None:
    """Give a document another name. Raise DocumentNotFound, or DocumentExists for a name that is taken."""
    rows = _named(user_id, kind, name)
    try:
        with transaction.atomic():
            # An update of a query sets no `auto_now`.
            changed = rows.update(name=new_name, updated_at=timezone.now())
    except IntegrityError as error:
        raise DocumentExists(f"There is a document {new_name!r} already.") from error
    if not changed:
        raise DocumentNotFound(f"There is no document {name!r}.")


def remove(user_id: int, kind: DocumentKind, name: str) -> bool:
    """Delete a document; return whether there was one."""
    removed, _ = _named(user_id, kind, name).delete()
    if removed:
        log_on_commit("Document removed", user=user_id, kind=kind, name=name)
    return bool(removed)


def _named(user_id: int, kind: DocumentKind, name: str) -> QuerySet[UserDocument]:
    """Return the one of this name; none for a name that no database could look for."""
    rows = UserDocument.objects.filter(user_id=user_id, kind=kind)
    return rows.filter(name=name) if columns.clean(name) == name else rows.none()


def _opened(row: UserDocument) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(row.sealed.open())
    except SecretUnreadable as error:
        logger.warning("%s %r of user %s: %s", row.kind, row.name, row.user_id, error)
        return None
    return value
