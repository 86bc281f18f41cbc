"""The app's start: guards after every `migrate`, and the check that they stand."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.db.models.signals import post_migrate

from conversations import durability, guards


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
        """Connect the guards to `migrate` and to the checks."""
        post_migrate.connect(install_guards, sender=self)
        checks.register(guards.check_guards, checks.Tags.database)
        checks.register(durability.check_durability, checks.Tags.database)
