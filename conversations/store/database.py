"""The store of metadata in Django's database."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Self

from django.db import transaction
from django.utils import timezone

from conversations import domain_events, provisional_titles
from conversations.cursors import ListCursor
from conversations.domain_events import DomainEvent
from conversations.exceptions import ConversationNotFound
from conversations.models import Conversation, ConversationQuerySet, Version, normal_id
from conversations.store import changes, creation, deletion
from conversations.store.creation import ConversationExists
from conversations.store.metadata import (
    ALL,
    COLUMN_OF,
    ConversationMetadata,
    ConversationMetadataResultSet,
    MetadataFilter,
    changed_columns,
    metadata_of,
)
from conversations.store.seam import ConversationStore


class DatabaseConversationStore(ConversationStore):
    """The metadata of conversations in Django's default database."""

    def __init__(self, user_id: str | None) -> None:
        self.user_id = user_id

    @classmethod
    def for_user(cls, user_id: str | None = None) -> Self:
        return cls(user_id)

    def save_metadata(self, metadata: ConversationMetadata, fields: Collection[str] | None = None) -> None:
        if unknown := set(fields or ()) - COLUMN_OF.keys():
            raise ValueError(f"A metadata save cannot change {', '.join(sorted(unknown))}.")
        public_id = normal_id(metadata.conversation_id)
        with transaction.atomic():
            # Compared under the row's lock, so that two saves cannot undo each other.
            if self._save_active(public_id, metadata, fields):
                return
            try:
                self._insert_metadata(public_id, metadata, COLUMN_OF if fields is None else fields)
            except ConversationExists:  # another user's, deleted, or inserted by another save just now
                if not self._save_active(public_id, metadata, fields):
                    raise

    def _save_active(
        self, public_id: str, metadata: ConversationMetadata, fields: Collection[str] | None
    ) -> bool:
        """Save into the existing conversation; return False if there is none."""
        row = self._active([public_id]).locked().first()
        if row is None:
            return False
        if fields is not None and "title" in fields:
            provisional_titles.note_chosen(row.pk)
        columns = changed_columns(row, metadata, fields)
        if columns:
            if "title" in columns:
                domain_events.record(row.pk, DomainEvent.RETITLED)
            changes.change(Conversation.objects.with_pks([row.pk]), row.ref, **columns)
        return True

    def _insert_metadata(
        self, public_id: str, metadata: ConversationMetadata, fields: Collection[str]
    ) -> None:
        owner_id = metadata.user_id or self.user_id
        if owner_id is None:
            raise ConversationNotFound("Conversation not found, and the metadata names no user to own it.")
        now = timezone.now()
        creation.insert(
            public_id=public_id,
            owner_id=int(owner_id),
            version=metadata.conversation_version or Version.V0,
            created_at=metadata.created_at or now,
            updated_at=metadata.last_updated_at or now,
            **{COLUMN_OF[name]: getattr(metadata, name) for name in fields},
        )

    def get_metadata(self, conversation_id: str) -> ConversationMetadata:
        return self.get_all_metadata([conversation_id])[0]

    def validate_metadata(self, conversation_id: str, user_id: str) -> bool:
        if not (user_id.isascii() and user_id.isdigit()):
            return False
        return self._active([normal_id(conversation_id)]).owned_by(int(user_id)).exists()

    def delete_metadata(self, conversation_id: str) -> None:
        row = self._active([normal_id(conversation_id)]).first()
        if row is None:
            raise ConversationNotFound("Conversation not found.")
        deletion.soft_delete(row.ref)

    def exists(self, conversation_id: str) -> bool:
        return self._active([normal_id(conversation_id)]).exists()

    def search(
        self, page_id: str | None = None, limit: int = 20, *, wanted: MetadataFilter = ALL, skip: int = 0
    ) -> ConversationMetadataResultSet:
        if limit < 1:
            raise ValueError(f"A page holds one conversation at least, not {limit}.")
        rows = _wanted(self._active().permanent(), wanted).newest_first()
        if page_id:
            rows = rows.older_than(*ListCursor.decode(page_id))
        found = list(rows[skip : skip + limit + 1])
        page, more = found[:limit], found[limit:]
        last = page[-1] if more else None
        return ConversationMetadataResultSet(
            results=[metadata_of(row) for row in page],
            next_page_id=ListCursor(last.created_at, last.pk).encode() if last else None,
        )

    def get_all_metadata(self, conversation_ids: Iterable[str]) -> list[ConversationMetadata]:
        public_ids = [normal_id(conversation_id) for conversation_id in conversation_ids]
        rows = {row.public_id: row for row in self._active(public_ids)}
        if absent := [public_id for public_id in public_ids if public_id not in rows]:
            raise ConversationNotFound(f"Conversation not found: {', '.join(absent[:5])}.")
        return [metadata_of(rows[public_id]) for public_id in public_ids]

    def _active(self, public_ids: Iterable[str] | None = None) -> ConversationQuerySet:
        rows = Conversation.objects.active()
        if self.user_id is not None:
            rows = rows.owned_by(int(self.user_id))
        return rows if public_ids is None else rows.with_public_ids(public_ids)


def _wanted(rows: ConversationQuerySet, wanted: MetadataFilter) -> ConversationQuerySet:
    rows = rows.matching(repository=wanted.repository, trigger=wanted.trigger)
    if wanted.changed_since is not None:
        rows = rows.changed_since(wanted.changed_since)
    if wanted.is_top_level:
        rows = rows.top_level()
    return rows if wanted.only is None else rows.with_pks([wanted.only])
