"""The index of labels: rows that triggers write with the tags of each conversation, in the same transaction.

A tag `name` with a value has two labels, `name` and `name:value`; one without a value has the first alone.
"""

from __future__ import annotations

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines.tables import CONVERSATION, LABEL

# Longer ones are indexed, and looked up, by their beginning: PostgreSQL indexes 2,704 bytes at most.
NAME_MAX_CHARS, LABEL_MAX_CHARS = 100, 500
BATCH = 5_000

_TAGS = {
    "sqlite": "json_each({table}.tags) AS tag",
    "postgresql": "jsonb_each_text(CASE jsonb_typeof({table}.tags) WHEN 'object' THEN {table}.tags "
    "ELSE '{{}}'::jsonb END) AS tag(key, value)",
}
_IS_OBJECT = {"sqlite": "json_type({table}.tags) = 'object' AND ", "postgresql": ""}
_COLUMNS = "conversation_id, owner_id, name, text, created_at, is_deleted"


def writing(vendor: str, condition: str) -> str:
    """Return the statement that adds the missing labels of the conversations that meet a condition."""
    tags, is_object = (part[vendor].format(table=CONVERSATION) for part in (_TAGS, _IS_OBJECT))
    name = f"substr(tag.key, 1, {NAME_MAX_CHARS})"
    alone = f"substr(tag.key, 1, {LABEL_MAX_CHARS})"
    whole = f"substr(tag.key || ':' || tag.value, 1, {LABEL_MAX_CHARS})"
    return (
        f"INSERT INTO {LABEL} ({_COLUMNS}) SELECT {CONVERSATION}.id, {CONVERSATION}.owner_id, {name}, "
        f"CASE part.has_value WHEN 1 THEN {whole} ELSE {alone} END, {CONVERSATION}.created_at, "
        f"{CONVERSATION}.deleted_at IS NOT NULL FROM {CONVERSATION} CROSS JOIN {tags} "
        "CROSS JOIN (SELECT 0 AS has_value UNION ALL SELECT 1) AS part "
        f"WHERE {is_object}{condition} AND (part.has_value = 0 OR tag.value <> '') ON CONFLICT DO NOTHING"
    )


def rewriting(vendor: str, key: str) -> str:
    """Return the statements that write the labels of one conversation anew."""
    return (
        f"DELETE FROM {LABEL} WHERE conversation_id = {key}; {writing(vendor, f'{CONVERSATION}.id = {key}')}"
    )


def changes(differs: str) -> str:
    """Return the condition that a changed row has other labels; `differs` compares two values."""
    columns = ("tags", "owner_id", "created_at", "deleted_at")
    return " OR ".join(f"OLD.{column} {differs} NEW.{column}" for column in columns)


def fill(connection: BaseDatabaseWrapper, *, batch: int = BATCH) -> None:
    """Write the labels of all conversations anew, BATCH conversations with each statement."""
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {CONVERSATION}")
        (last,) = cursor.fetchone()
        for first in range(0, last + 1, batch):
            bounds = [first, first + batch]
            cursor.execute(
                f"DELETE FROM {LABEL} WHERE conversation_id >= %s AND conversation_id < %s", bounds
            )
            place = f"{CONVERSATION}.id >= %s AND {CONVERSATION}.id < %s AND {CONVERSATION}.tags <> '{{}}'"
            cursor.execute(writing(connection.vendor, place), bounds)
