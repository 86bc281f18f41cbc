"""Serve, and take SQLite's file from its path in the commit of an event whose id is TAKEN_WITH.

Run as `python -m tests.support.servers.removing_server [command of convserver]`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import django

from convserver.cli import main

TAKEN_WITH = "the file goes with this event"


def watch(connection: Any, **_: object) -> None:
    """Look at the statements of a new connection."""
    file = Path(connection.settings_dict["NAME"])
    is_near = False

    def look(statement: str) -> None:
        nonlocal is_near
        if TAKEN_WITH in statement and statement.startswith("INSERT INTO conversations_event"):
            is_near = True
        elif statement == "COMMIT" and is_near:
            is_near = False
            file.rename(file.with_name("aside"))

    connection.connection.set_trace_callback(look)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    django.setup()
    from django.db.backends.signals import connection_created

    connection_created.connect(watch)
    sys.exit(main(sys.argv[1:] or ["serve"]))
