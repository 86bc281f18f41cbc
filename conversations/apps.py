"""The app's start: guards after every `migrate`, and the check that they are in place."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.apps.registry import Apps
from django.core import checks
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.migrations import Migration
from django.db.models.signals import post_migrate, pre_migrate

from conversations.engines import case_insensitive, durability, guards

logger = logging.getLogger(__name__)


def make_way(*, using: str, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Remove the guards that would block a migration of these tables; its end restores all of them."""
    if any(migration.app_label == ConversationsConfig.name for migration, _ in plan):
        guards.make_way(connections[using])


def install_guards(*, using: str, apps: Apps, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Install the guards once the tables exist; record a repair."""
    connection = connections[using]
    tables = connection.introspection.table_names()
    if not {guards.EVENT, guards.CONVERSATION, guards.PURGE} <= set(tables):
        return
    lost = guards.install(connection)
    # Migrations remove guards themselves.
    if lost and not plan and guards.REPAIR in tables:
        names = ", ".join(sorted(lost))
        logger.warning("The database had lost its guards (%s); they were put back.", names)
        repairs = apps.get_model("conversations", "GuardRepair").objects.using(using)
        repairs.create(guards=names, host=socket.gethostname(), pid=os.getpid())


class ConversationsConfig(AppConfig):
    name = "conversations"

    def ready(self) -> None:
        """Connect the guards to `migrate` and to the checks, and register SQLite's upper-case function."""
        connection_created.connect(case_insensitive.register_function)
        pre_migrate.connect(make_way, sender=self)
        post_migrate.connect(install_guards, sender=self)
        checks.register(guards.check_guards, checks.Tags.database)
        checks.register(durability.check_durability, checks.Tags.database)
