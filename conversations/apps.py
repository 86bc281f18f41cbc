"""The app's start: guards after every `migrate`, and the check that they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.migrations import Migration
from django.db.models.signals import post_migrate, pre_migrate

from conversations import any_case, durability, guards


def make_way(*, using: str, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Take the guards away that would stop a migration of these tables; it ends with all in place."""
    if any(migration.app_label == ConversationsConfig.name for migration, _ in plan):
        guards.make_way(connections[using])


def install_guards(*, using: str, **kwargs: Any) -> None:
    """Put the guards in place once the tables exist."""
    connection = connections[using]
    tables = connection.introspection.table_names()
    if {guards.EVENT, guards.CONVERSATION, guards.PURGE} <= set(tables):
        guards.install(connection)


class ConversationsConfig(AppConfig):
    """Conversations and their logs."""

    name = "conversations"

    def ready(self) -> None:
        """Connect the guards to `migrate` and to the checks, and teach SQLite all letters."""
        connection_created.connect(any_case.teach)
        pre_migrate.connect(make_way, sender=self)
        post_migrate.connect(install_guards, sender=self)
        checks.register(guards.check_guards, checks.Tags.database)
        checks.register(durability.check_durability, checks.Tags.database)
