"""`export_conversations`: write all conversations of a user into a zip file."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from convserver.exports import account
from sessions_app.imports import options


class Command(BaseCommand):
    """Export conversations."""

    help = (
        "Write all conversations of a user, without deleted ones, into a zip file: each as JSON lines, which "
        "`convserver import` takes, and attachments beside."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the file and the owner."""
        parser.add_argument("file", type=Path, help="the zip file, which must not exist yet")
        parser.add_argument(
            "--owner", metavar="USERNAME", help="whose conversations; required in accounts mode"
        )

    def handle(self, *args: Any, file: Path, owner: str | None, **others: Any) -> None:
        """Write the file under another name until it is complete, and say how large it is."""
        options.prepare_database(dry_run=True)
        user = options.owner(owner, dry_run=True)
        if os.path.lexists(file):
            raise CommandError(f"{file} exists already: choose another name.")
        unfinished = file.with_name(f"{file.name}.unfinished")
        try:
            with unfinished.open("wb") as target:
                for piece in account.pieces(user):
                    target.write(piece)
                target.flush()
                os.fsync(target.fileno())
            unfinished.replace(file)
        except OSError as error:
            raise CommandError(f"{file} cannot be written: {error.strerror}.") from error
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
        self.stdout.write(f"{file}: {file.stat().st_size:,} bytes")
