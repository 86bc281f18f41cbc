"""The store in Django's database: every write to a conversation begins here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from django.db import transaction
from django.db.models.functions import Greatest
from django.utils import timezone

from conversations import access, domain_events, live, provisional_titles
from conversations.access import Visitor
from conversations.cursors import ListCursor
from conversations.domain_events import DomainEvent
from conversations.events import (
    NewEvent,
)
from conversations.exceptions import (
    ConversationNotFound,
    EventConflict,
    InvalidEvent,
)
from conversations.log import writes
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    ConversationRef,
    CreationParameters,
    Version,
    new_public_id,
    normal_id,
)
from conversations.redaction import secrets
from conversations.server_log import ids_of, log_on_commit
from conversations.storage import quotas
from conversations.store import deletion, forks, importing
from conversations.store.importing import Imported, Times
from conversations.store.metadata import (
    ALL,
    COLUMN_OF,
    ConversationMetadata,
    ConversationMetadataResultSet,
    MetadataFilter,
    changed_columns,
    metadata_of,
)
from conversations.store.seam import ConversationExists, ConversationStore


class DatabaseConversationStore(ConversationStore):
    """Conversations in Django's default database."""

    def __init__(self, user_id: str | None) -> None:
        self.user_id = user_id

    @classmethod
    def get_instance(cls, user_id: str | None = None) -> Self:
        """Return a store that acts for this user."""
        return cls(user_id)

    def save_metadata(self, metadata: ConversationMetadata, fields: Collection[str] | None = None) -> None:
        """Compare with the row under its lock, and write only the columns that change; see the seam."""
        if unknown := set(fields or ()) - COLUMN_OF.keys():
            raise ValueError(f"A metadata save cannot change {', '.join(sorted(unknown))}.")
        public_id = normal_id(metadata.conversation_id)
        with transaction.atomic():
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
        changes = changed_columns(row, metadata, fields)
        if changes:
            if "title" in changes:
                domain_events.record(row.pk, DomainEvent.RETITLED)
            self._change(Conversation.objects.with_pks([row.pk]), row.ref, **changes)
        return True

    def _insert_metadata(
        self, public_id: str, metadata: ConversationMetadata, fields: Collection[str]
    ) -> None:
        owner_id = metadata.user_id or self.user_id
        if owner_id is None:
            raise ConversationNotFound("Conversation not found, and the metadata names no user to own it.")
        now = timezone.now()
        _insert(
            public_id=public_id,
            owner_id=int(owner_id),
            version=metadata.conversation_version or Version.V0,
            created_at=metadata.created_at or now,
            updated_at=metadata.last_updated_at or now,
            **{COLUMN_OF[name]: getattr(metadata, name) for name in fields},
        )

    def get_metadata(self, conversation_id: str) -> ConversationMetadata:
        """Return the metadata; see the seam."""
        return self.get_all_metadata([conversation_id])[0]

    def validate_metadata(self, conversation_id: str, user_id: str) -> bool:
        """Say whether the conversation exists and is this user's."""
        if not (user_id.isascii() and user_id.isdigit()):
            return False
        return self._active([normal_id(conversation_id)]).owned_by(int(user_id)).exists()

    def delete_metadata(self, conversation_id: str) -> None:
        """Hide the conversation; see the seam."""
        row = self._active([normal_id(conversation_id)]).first()
        if row is None:
            raise ConversationNotFound("Conversation not found.")
        self.soft_delete(row.ref)

    def exists(self, conversation_id: str) -> bool:
        """Say whether the conversation exists and is not deleted."""
        return self._active([normal_id(conversation_id)]).exists()

    def search(
        self, page_id: str | None = None, limit: int = 20, *, wanted: MetadataFilter = ALL, skip: int = 0
    ) -> ConversationMetadataResultSet:
        """Return one page by keyset with one query; see the seam."""
        if limit < 1:
            raise ValueError(f"A page holds one conversation at least, not {limit}.")
        rows = _wanted(self._active(), wanted).newest_first()
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
        """Return all of them with one query; see the seam."""
        public_ids = [normal_id(conversation_id) for conversation_id in conversation_ids]
        rows = {row.public_id: row for row in self._active(public_ids)}
        if absent := [public_id for public_id in public_ids if public_id not in rows]:
            raise ConversationNotFound(f"Conversation not found: {', '.join(absent[:5])}.")
        return [metadata_of(rows[public_id]) for public_id in public_ids]

    def create(
        self,
        user: Visitor,
        *,
        conversation_id: str | None = None,
        version: Version = Version.V0,
        parameters: dict[str, Any] | None = None,
        events: Sequence[NewEvent] = (),
        **facts: Any,
    ) -> ConversationRef:
        """Insert the row, its creation parameters and its first events; see the seam."""
        public_id = normal_id(conversation_id) if conversation_id else new_public_id()
        owner_id = access.pk_of(user)
        quotas.admit_conversation(owner_id)
        with transaction.atomic():
            shown = secrets.masked_columns(owner_id, None, facts)
            row = _insert(public_id=public_id, owner_id=owner_id, version=version, **shown)
            if parameters:
                CreationParameters.objects.create(conversation=row, parameters=parameters)
            if events:
                writes.append(row.ref, events)
        return row.ref

    def fork(
        self,
        user: Visitor,
        source: ConversationRef,
        *,
        conversation_id: str | None = None,
        through: int | None = None,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
        keep_metrics: bool = False,
    ) -> ConversationRef:
        """Copy the events with one statement; see the seam."""
        public_id = normal_id(conversation_id) if conversation_id else new_public_id()
        quotas.admit_conversation(access.pk_of(user))
        with transaction.atomic():
            original = Conversation.objects.active().filter(pk=source.pk).first()
            if original is None:
                raise ConversationNotFound("Conversation not found.")
            row = _insert(
                public_id=public_id,
                owner_id=access.pk_of(user),
                **secrets.masked_columns(
                    source.owner_id, source.pk, {"title": title, "tags": dict(tags or {})}
                ),
                **forks.beginning(original, through=through, keep_metrics=keep_metrics),
            )
            quotas.admit_bytes(row.owner_id, lambda: forks.size_of(source, through=row.next_seq - 1))
            forks.copy(source, row.ref, through=row.next_seq - 1)
        return row.ref

    def import_conversation(
        self,
        user: Visitor,
        events: Iterable[NewEvent],
        *,
        conversation_id: str,
        version: Version,
        begin: Callable[[ConversationRef], None] | None = None,
        **facts: Any,
    ) -> Imported:
        """Append the missing events, one transaction for each batch; see the seam."""
        conversation = importing.standing(user, conversation_id, version)
        if conversation is None:
            conversation = self._imported(user, conversation_id, version, begin, facts)
        imported, times = Imported(conversation=conversation), Times()
        for batch in importing.batches(events):
            self._import_batch(imported, conversation, batch)
            for event in batch:
                times.note(event)
        if imported.added:
            _set_times(conversation, times, event_count=imported.added + imported.repeated)
        return imported

    def _imported(
        self,
        user: Visitor,
        conversation_id: str,
        version: Version,
        begin: Callable[[ConversationRef], None] | None,
        facts: Mapping[str, Any],
    ) -> ConversationRef:
        try:
            with transaction.atomic():
                # Quotas are not asked: an operator imports, by a command.
                public_id, owner_id = normal_id(conversation_id), access.pk_of(user)
                made = _insert(public_id=public_id, owner_id=owner_id, version=version, **facts).ref
                if begin is not None:
                    begin(made)
        except ConversationExists:  # created by another transaction just now
            found = importing.standing(user, conversation_id, version)
            if found is None:
                raise
            return found
        return made

    def _import_batch(
        self, imported: Imported, conversation: ConversationRef, batch: Sequence[NewEvent]
    ) -> None:
        """Append the missing events of a batch, each alone if one of them cannot be stored."""
        new = importing.missing(conversation, batch)
        imported.repeated += len(batch) - len(new)
        try:
            appended = writes.append(conversation, new) if new else []
        except (InvalidEvent, EventConflict) as error:
            if len(new) == 1:
                imported.refused.append((new[0], str(error)))
                return
            for event in new:
                self._import_batch(imported, conversation, [event])
            return
        added = sum(each.is_new for each in appended)
        imported.added += added
        imported.repeated += len(appended) - added

    def join(self, user: Visitor, conversation_id: str, *, version: Version = Version.V0) -> ConversationRef:
        """Ask the validator; see the seam."""
        conversation, is_new = access.validator().validate(user, conversation_id, version=version)
        if is_new:
            transaction.on_commit(lambda: live.announce_listed(conversation), robust=True)
        return conversation

    def retitle(self, conversation: ConversationRef, title: str | None, **only_if: str | None) -> bool:
        """Update the title if the condition holds; see the seam."""
        rows = Conversation.objects.active().filter(pk=conversation.pk)
        if "title_is" in only_if:
            rows = rows.filter(title=only_if["title_is"])
        now = timezone.now()
        with transaction.atomic():
            shown = secrets.masked_columns(conversation.owner_id, conversation.pk, {"title": title})
            changed = bool(rows.update(**shown, updated_at=Greatest("updated_at", now), listed_at=now))
            if changed:
                if "title_is" not in only_if:
                    provisional_titles.note_chosen(conversation.pk)
                domain_events.record(conversation.pk, DomainEvent.RETITLED)
                transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)
        return changed

    def retag(self, conversation: ConversationRef, tags: Mapping[str, str]) -> None:
        """Update the tags; see the seam."""
        self._change(Conversation.objects.active().filter(pk=conversation.pk), conversation, tags=dict(tags))

    def note_branch(self, conversation: ConversationRef, branch: str) -> None:
        """Update the branch if it is another one; see the seam."""
        rows = Conversation.objects.active().filter(pk=conversation.pk, repository__isnull=False)
        self._change(rows.exclude(branch=branch), conversation, branch=branch)

    def note_pull_request(self, conversation: ConversationRef, number: int) -> None:
        """Add the number under the conversation's lock; see the seam."""
        with transaction.atomic():
            rows = Conversation.objects.active().filter(pk=conversation.pk)
            numbers = rows.locked().values_list("pr_number", flat=True).first()
            if numbers is not None and number not in numbers:
                self._change(rows, conversation, pr_number=[*numbers, number])

    def _change(self, rows: ConversationQuerySet, conversation: ConversationRef, **columns: Any) -> None:
        shown = secrets.masked_columns(conversation.owner_id, conversation.pk, columns)
        if rows.update(**shown, listed_at=timezone.now()):
            transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)

    def set_parameter_once(self, conversation: ConversationRef, name: str, value: Any) -> bool:
        """Add it under the conversation's lock; see the seam."""
        with transaction.atomic():
            Conversation.objects.locked().get(pk=conversation.pk)
            row, _ = CreationParameters.objects.get_or_create(conversation_id=conversation.pk)
            if name in row.parameters:
                return False
            row.parameters[name] = value
            row.save(update_fields=["parameters"])
        return True

    def soft_delete(self, conversation: ConversationRef) -> None:
        """Delete the conversation until it is restored; see the seam."""
        deletion.soft_delete(conversation)

    def restore(self, conversation: ConversationRef) -> None:
        """Take the deletion back; see the seam."""
        deletion.restore(conversation)

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


def _set_times(conversation: ConversationRef, times: Times, *, event_count: int) -> None:
    """Set the times of a log that contains only imported events to those of its last event."""
    moments = {"updated_at": times.event, "last_message_at": times.message}
    now = timezone.now()
    changes = {name: min(moment, now) for name, moment in moments.items() if moment is not None}
    rows = Conversation.objects.active().with_pks([conversation.pk])
    with transaction.atomic():
        # A simultaneous append moves next_seq, and this waits for it.
        if changes and rows.filter(next_seq=event_count).update(**changes, listed_at=now):
            transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)


def _insert(*, public_id: str, owner_id: int, **columns: Any) -> Conversation:
    """Insert a conversation and announce it. Raise ConversationExists for a taken id."""
    now = timezone.now()
    times = {"created_at": now, "updated_at": now, "listed_at": now}
    row, is_new = Conversation.objects.get_or_create(
        public_id=public_id, defaults={**times, "owner_id": owner_id, **columns}
    )
    if not is_new:
        raise ConversationExists(_why_taken(row, owner_id))
    conversation = row.ref
    domain_events.record(row.pk, DomainEvent.CREATED)
    log_on_commit("Conversation created", **ids_of(conversation), version=row.version)
    transaction.on_commit(lambda: live.announce_listed(conversation), robust=True)
    return row


def _why_taken(row: Conversation, user_pk: int) -> str:
    """Return why the user cannot have the id of this row, without telling of what others have done."""
    if row.owner_id == user_pk and row.deleted_at is not None:
        return f"You have deleted the conversation {row.public_id}. Restore it, or choose another id."
    if row.owner_id == user_pk:
        return f"You already have a conversation {row.public_id}. Use it, or choose another id."
    return f"The conversation id {row.public_id} is taken."
