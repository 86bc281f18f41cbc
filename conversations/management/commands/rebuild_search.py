"""`rebuild_search`: rebuild the search indexes from the log and the titles, or continue a rebuild."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from conversations.engines.watermark import EventHorizon
from conversations.models import SearchProgress
from conversations.search import titles
from conversations.search.fulltext import indexing

REST_S = 0.01  # the pause between two steps, for waiting writers


class Command(BaseCommand):
    help = (
        "Empty the search index and rebuild it from the log. The server may run meanwhile; until the index "
        "is complete, searches find everything but take longer. After an interruption, the server, or this "
        "command with --resume, continues the rebuild."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--resume", action="store_true", help="continue without emptying the index first")

    def handle(self, *args: Any, **options: Any) -> None:
        """Index all events that exist at the beginning, and print their number."""
        watermark = EventHorizon()
        watermark.look()
        newest = watermark.newest
        if not options["resume"]:
            indexing.begin_anew()
        while titles.step():
            time.sleep(REST_S)
        events = 0
        while SearchProgress.through_now() < newest:
            watermark.look()
            events += indexing.step(watermark).events
            time.sleep(REST_S)
        self.stdout.write(f"The index is complete. Events read: {events}.")
