"""What a restored store must not believe of the time before: leases, claims, connections, places in lists."""

from __future__ import annotations

import time

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from conversations.change_order import TRANSACTION
from sessions_app.models import DeletedLimit, ProcessRecord


def void_leases(store: BaseDatabaseWrapper) -> None:
    """End the rights of every loop of the time before, in one transaction.

    The turns that loops had begun are found as after a crash. Every conversation counts as changed.
    """
    # A server of that time may still run somewhere, with an epoch that is newer than the backup's. So epochs
    # go on from the present time in milliseconds: no loop can have claimed so often, and a second restore of
    # the same backup comes later than the first.
    now_ms = time.time_ns() // 1_000_000
    with transaction.atomic(using=store.alias), store.cursor() as cursor:
        # `listed_in` makes clients that follow lists read all conversations again.
        cursor.execute(
            "UPDATE conversations_conversation SET loop_epoch = "  # noqa: S608
            "CASE WHEN loop_epoch < %s THEN %s ELSE loop_epoch + 1 END, "
            f"listed_in = {_number(store, now_ms)}",
            [now_ms, now_ms],
        )
        cursor.execute("UPDATE sessions_app_agentloop SET lease_expires_at = NULL")
        cursor.execute("UPDATE sessions_app_delivery SET claim = '', held_until = NULL")
        cursor.execute("DELETE FROM sessions_app_connection")
        # Deleted conversations can be restored for the whole time again: an operator who restores a backup
        # may miss just these.
        DeletedLimit.objects.using(store.alias).update(since=timezone.now())
        # They would be missed here. A backup from before the first release may lack the table.
        if ProcessRecord._meta.db_table in store.introspection.table_names(cursor):
            ProcessRecord.objects.using(store.alias).all().delete()


def _number(store: BaseDatabaseWrapper, now_ms: int) -> str:
    """Return the number of this change in the order of commits, which is not that of the backup's time."""
    if store.vendor == "postgresql":
        return TRANSACTION
    with store.cursor() as cursor:
        cursor.execute(
            "INSERT INTO conversations_changenumber (id, number) VALUES (1, %s) "
            "ON CONFLICT (id) DO UPDATE SET number = MAX(number + 1, excluded.number)",
            [now_ms],
        )
    return "(SELECT number FROM conversations_changenumber)"
