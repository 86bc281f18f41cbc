"""`rebuild_search`: rebuild the search indexes from the log and the titles, or continue a rebuild."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from conversations.search.fulltext import indexing


class Command(BaseCommand):
    help = (
        "Empty the search index and rebuild it from the log. The server may run meanwhile; until the index "
        "is complete, searches find everything but take longer. After an interruption, the server, or this "
        "command with --resume, continues the rebuild."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--resume", action="store_true", help="continue without emptying the index first")

    def handle(self, *args: Any, **options: Any) -> None:
        events = indexing.rebuild(resume=options["resume"])
        self.stdout.write(f"The index is complete. Events read: {events}.")
