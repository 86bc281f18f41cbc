"""Expand, then contract: an earlier release works on the upgraded database until it is replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
from django.db import models
from django.db.migrations import Migration
from django.db.migrations import operations as made
from django.db.migrations.loader import MigrationLoader

OWN = ("conversations", "sessions_app")
CONTRACTING = (made.RemoveField, made.DeleteModel, made.RenameField, made.RenameModel, made.AlterModelTable)
"""What an earlier release may still use is gone after these."""
_TAKES = re.compile(r"DROP\s+(TABLE|COLUMN)|RENAME", re.IGNORECASE)


def contracting(migration: Migration) -> Iterator[str]:
    """Describe what of a migration an earlier release cannot work with."""
    new = {each.name_lower for each in migration.operations if isinstance(each, made.CreateModel)}
    for each in _flat(migration.operations):
        if isinstance(each, CONTRACTING):
            yield each.describe()
        elif isinstance(each, made.RunSQL) and _TAKES.search(str(each.sql)):
            yield f"{each.describe()}: {each.sql}"
        elif (
            isinstance(each, made.AddField)
            and each.model_name_lower not in new
            and _must_be_given(each.field)
        ):
            yield f"{each.describe()}, which an earlier release does not give"


def _flat(operations: Sequence[made.base.Operation]) -> Iterator[made.base.Operation]:
    for each in operations:
        if isinstance(each, made.SeparateDatabaseAndState):
            yield from _flat(each.database_operations)
        else:
            yield each


def _must_be_given(field: models.Field[object, object]) -> bool:
    return not (field.null or field.many_to_many or field.has_db_default())


def refused(migration: Migration) -> list[str]:
    """Return what is wrong with a migration that contracts without a reason."""
    return [] if getattr(migration, "contracts", "") else list(contracting(migration))


def own_migrations() -> list[Migration]:
    found = MigrationLoader(None).disk_migrations
    return [each for (app, _), each in sorted(found.items()) if app in OWN]


@pytest.mark.parametrize("migration", own_migrations(), ids=str)
def test_a_migration_only_adds_or_says_why_nobody_misses_what_it_takes(migration: Migration) -> None:
    assert refused(migration) == [], (
        "An earlier release that still runs would fail. Add now and remove in a later release, "
        "or say in `contracts` of the Migration why no running release uses this any more."
    )


def test_only_a_migration_that_contracts_has_a_reason() -> None:
    assert [
        each for each in own_migrations() if hasattr(each, "contracts") and not [*contracting(each)]
    ] == []


@pytest.mark.parametrize(
    "operation",
    [
        made.RemoveField("conversation", "title"),
        made.DeleteModel("Conversation"),
        made.RenameField("conversation", "title", "name"),
        made.RenameModel("Conversation", "Talk"),
        made.AddField("conversation", "mood", models.TextField()),
        made.AddField("conversation", "mood", models.TextField(default="")),
        made.RunSQL("ALTER TABLE conversations_event DROP COLUMN text"),
        made.SeparateDatabaseAndState(database_operations=[made.RemoveField("conversation", "title")]),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_what_an_earlier_release_cannot_work_with_is_refused(operation: made.base.Operation) -> None:
    migration = Migration("0099_made_up", "conversations")
    migration.operations = [operation]  # type: ignore[misc]
    assert refused(migration)
    migration.contracts = "Nothing has used it since 0.9."  # type: ignore[attr-defined]
    assert not refused(migration)


def test_what_only_adds_is_accepted() -> None:
    migration = Migration("0099_made_up", "conversations")
    migration.operations = [  # type: ignore[misc]
        made.AddField("conversation", "mood", models.TextField(null=True)),
        made.AddField("conversation", "mood", models.TextField(default="", db_default="")),
        made.CreateModel("Mood", fields=[("name", models.TextField())]),
        made.AddField("mood", "strength", models.IntegerField()),
    ]
    assert not refused(migration)
