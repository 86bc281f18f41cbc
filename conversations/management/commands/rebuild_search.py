"""`rebuild_search`: write the search indexes anew from the log and the titles, or go on writing them."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from conversations import titles
from conversations.fulltext import indexing
from conversations.fulltext.indexing import Horizon
from conversations.models import SearchProgress

REST_S = 0.01
"""Between two steps, for whoever waits to write."""


class Command(BaseCommand):
    """Write the search index anew."""

    help = (
        "Empty the search index and write it anew from the log. May run beside the server, and be "
        "interrupted: what is not in the index is found all the same, only slower, and the server, or this "
        "with --resume, goes on where it ended."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take --resume."""
        parser.add_argument("--resume", action="store_true", help="go on, without emptying the index first")

    def handle(self, *args: Any, **options: Any) -> None:
        """Index what was there at the beginning, and say how many events were looked at."""
        horizon = Horizon()
        horizon.look()
        newest = horizon.newest
        if not options["resume"]:
            indexing.begin_anew()
        while titles.step():
            time.sleep(REST_S)
        events = 0
        while SearchProgress.through_now() < newest:
            horizon.look()
            events += indexing.step(horizon).events
            time.sleep(REST_S)
        self.stdout.write(f"The index is complete. Events looked at: {events}.")
