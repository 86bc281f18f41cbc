"""Appends while SQLite's file is taken from its path: `python -m tests.support.servers.removed_file`.

Prints one line for each moment: what the caller was told, how many events there are once the file is back,
and whether the event is new when it is sent again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")

import django

django.setup()

from django.db import connection

from conversations.log import reads, writes
from conversations.store import creation
from sessions_app.identity.authentication import local_user
from tests.support.data.events import event

FILE = Path(connection.settings_dict["NAME"])
ASIDE = FILE.with_name("aside")


def remove(*args: object) -> None:
    """Take the file away."""
    FILE.rename(ASIDE)


def during_the_commit() -> None:
    """Let it be removed when the commit has begun."""
    connection.ensure_connection()
    connection.connection.set_trace_callback(lambda sql: remove() if sql == "COMMIT" else None)


def try_once(name: str, prepare: Callable[[], None], also: Callable[..., None] | None) -> None:
    """Append, put the file back, and say what there is."""
    talk = creation.create(local_user(), conversation_id=name)
    sent = event(event_id=name)
    prepare()
    told = "stored"
    try:
        writes.append(talk, [sent], also=also)
    except Exception as error:
        told = type(error).__name__
    if connection.connection is not None:
        connection.connection.set_trace_callback(None)
    ASIDE.rename(FILE)
    count = len(reads.read_after(talk, -1))
    (repeated,) = writes.append(talk, [sent])
    print(f"{name}: {told}, {count}, {repeated.is_new}", flush=True)


if __name__ == "__main__":
    try_once("before the commit", lambda: None, remove)
    try_once("during the commit", during_the_commit, None)
