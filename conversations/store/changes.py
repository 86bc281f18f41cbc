"""Changes of what a list shows of a conversation: its title, its tags, its branch and pull requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Greatest
from django.utils import timezone

from conversations import domain_events, live, provisional_titles
from conversations.domain_events import DomainEvent
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, CreationParameters
from conversations.redaction import secrets
from conversations.store import temporary


def retitle(conversation: ConversationRef, title: str | None, **only_if: str | None) -> bool:
    """Set the title; with `title_is=…` only if that is still the title. Return whether it was set.

    A title that is set without a condition is a user's choice: no generated one replaces it. One that is
    set with a condition was derived from the messages, or comes from another program.
    """
    rows = Conversation.objects.active().filter(pk=conversation.pk)
    if "title_is" in only_if:
        rows = rows.filter(title=only_if["title_is"])
    now = timezone.now()
    with transaction.atomic():
        shown = secrets.masked_columns(conversation.owner_id, conversation.pk, {"title": title})
        changed = bool(rows.update(**shown, updated_at=Greatest("updated_at", now), listed_at=now))
        if changed:
            if "title_is" in only_if:
                provisional_titles.note_derived(conversation.pk)
            else:
                provisional_titles.note_chosen(conversation.pk)
            domain_events.record(conversation.pk, DomainEvent.RETITLED)
            transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)
    return changed


def retag(conversation: ConversationRef, tags: Mapping[str, str]) -> None:
    """Set all tags. Raise TemporaryConversation."""
    rows = Conversation.objects.active().filter(pk=conversation.pk)
    if tags:
        temporary.refuse_labels(rows)
    change(rows, conversation, tags=dict(tags))


def retag_all(rows: Sequence[Conversation]) -> None:
    """Store the new tags of these rows, in a transaction that has locked them."""
    owners = {row.pk: row.owner_id for row in rows}
    masks = secrets.masks_for(owners.items(), secrets.found(list(set(owners.values())), list(owners)).rows())
    now = timezone.now()
    for row in rows:
        row.tags = secrets.hidden_in_columns({"tags": row.tags}, masks[row.pk])["tags"]
        transaction.on_commit(partial(live.announce_changed, row.ref), robust=True)
    fields: list[Any] = [Conversation._meta.get_field(name) for name in ("tags", "listed_at")]
    tags, listed_at = fields
    # Not `bulk_update`, which builds an expression for each row while other writers wait.
    with connection.cursor() as cursor:
        cursor.executemany(
            _RETAG,
            [
                (
                    tags.get_db_prep_save(row.tags, connection),
                    listed_at.get_db_prep_save(now, connection),
                    row.pk,
                )
                for row in rows
            ],
        )


_RETAG = "UPDATE conversations_conversation SET tags = %s, listed_at = %s WHERE id = %s"


def note_branch(conversation: ConversationRef, branch: str) -> None:
    """Set the branch that is checked out; do nothing for a conversation without a repository."""
    rows = Conversation.objects.active().filter(pk=conversation.pk, repository__isnull=False)
    change(rows.exclude(branch=branch), conversation, branch=branch)


def note_pull_request(conversation: ConversationRef, number: int) -> None:
    """Add a newly opened pull request; a known one changes nothing."""
    with transaction.atomic():
        rows = Conversation.objects.active().filter(pk=conversation.pk)
        numbers = rows.locked().values_list("pr_number", flat=True).first()
        if numbers is not None and number not in numbers:
            change(rows, conversation, pr_number=[*numbers, number])


def set_parameter_once(conversation: ConversationRef, name: str, value: Any) -> bool:
    """Add a creation parameter (JSON) unless its name exists; return whether it was added."""
    with transaction.atomic():
        Conversation.objects.locked().get(pk=conversation.pk)
        row, _ = CreationParameters.objects.get_or_create(conversation_id=conversation.pk)
        if name in row.parameters:
            return False
        row.parameters[name] = value
        row.save(update_fields=["parameters"])
    return True


def change(rows: ConversationQuerySet, conversation: ConversationRef, **columns: Any) -> None:
    """Update these columns of the conversation, if `rows` has it, with secrets masked, and announce it."""
    shown = secrets.masked_columns(conversation.owner_id, conversation.pk, columns)
    if rows.update(**shown, listed_at=timezone.now()):
        transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)
