"""Labels of a user: which exist, and changing the tags of many conversations at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from django.db import transaction
from django.db.models import Count, QuerySet

from conversations import access
from conversations.access import Visitor
from conversations.exceptions import ConversationError
from conversations.log.locks import lock_all
from conversations.models import Conversation, ConversationRef, Label, LabelQuerySet
from conversations.payloads.limits import limits_of
from conversations.store import changes, temporary

TAGS_MAX = 50
TAG_NAME_MAX_LENGTH = 100
TAG_MAX_LENGTH = 500
LABEL_MAX_LENGTH = TAG_NAME_MAX_LENGTH + 1 + TAG_MAX_LENGTH  # a name, a colon and a value
IS_FULL = f"A conversation has at most {TAGS_MAX} tags. Remove one first."


class BadLabel(ConversationError):
    code: ClassVar[str] = "bad_label"


def read_label(text: str) -> tuple[str, str]:
    """Return the name and the value of `name` or `name: value`. Raise BadLabel."""
    name, _, value = (part.strip() for part in text.partition(":"))
    if not name:
        raise BadLabel("A label begins with its name.")
    if len(name) > TAG_NAME_MAX_LENGTH or len(value) > TAG_MAX_LENGTH:
        raise BadLabel(
            f"A label has at most {TAG_NAME_MAX_LENGTH} characters, and {TAG_MAX_LENGTH} after its colon."
        )
    return name, value


@dataclass(frozen=True, slots=True)
class LabelCount:
    """A label, and how many of the user's conversations have it."""

    label: str
    count: int


def counted(user: Visitor, *, name: str | None = None, after: str = "", limit: int) -> list[LabelCount]:
    """Return the names of tags, or with `name` its values as `name:value`, in order, beginning after one."""
    rows = Label.objects.of_owner(access.pk_of(user))
    if (only := limits_of(user).only) is not None:
        rows = rows.filter(conversation_id=only)
    rows = rows.names() if name is None else rows.values_of(name)
    if after:
        rows = rows.filter(text__gt=after)
    return [LabelCount(row["text"], row["count"]) for row in counts(rows)[:limit]]


def counts(rows: LabelQuerySet) -> QuerySet[Any, Any]:
    """Return each text of these rows, in order, with its count; indexes hold all that is read."""
    return rows.order_by("text").values("text").annotate(count=Count("*"))


class Retagged(NamedTuple):
    """The outcome of changing a tag of many conversations."""

    # By id: the value that the changed tag had, None for none; of those that changed, and no others.
    before: dict[str, str | None]
    refused: dict[str, str]  # by id: why a conversation was not changed


def set_tag(
    name: str,
    values: Mapping[ConversationRef, str | None],
    *,
    where_it_is: Collection[str | None] | None = None,
) -> Retagged:
    """Set one tag of many conversations; remove it from those whose value is None; skip deleted ones.

    With `where_it_is`, only where the tag has one of these values now, None for none. All in one transaction.
    Raise ConversationBusy.
    """
    done = Retagged({}, {})
    changed: list[Conversation] = []
    with transaction.atomic():
        lock_all(list(values))
        rows = Conversation.objects.active().with_pks(each.pk for each in values)
        for row in rows.only("pk", "public_id", "owner_id", "version", "tags", "expires_at"):
            had, wanted = row.tags.get(name), values[row.ref]
            if had == wanted or (where_it_is is not None and had not in where_it_is):
                continue
            if wanted is not None and row.expires_at is not None:
                done.refused[row.public_id] = temporary.NO_LABELS
                continue
            if wanted is not None and name not in row.tags and len(row.tags) >= TAGS_MAX:
                done.refused[row.public_id] = IS_FULL
                continue
            done.before[row.public_id] = had
            row.tags = {**row.tags, name: wanted or ""}  # a present tag keeps its place among the others
            if wanted is None:
                del row.tags[name]
            changed.append(row)
        if changed:
            changes.retag_all(changed)
    return done
