"""`checkpoint`: write a signed checkpoint of all logs."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from conversations.verification import checkpoints
from conversations.verification.signatures import KeyUnusable, read_key
from sessions_app.imports import options
from sessions_app.management.commands.verify import COULD_NOT_RUN, add_key, counted, key_path


class Command(BaseCommand):
    """Write a checkpoint."""

    help = (
        "Write a signed checkpoint: what every log is now, so that `verify --against` finds what was changed "
        "since, even if all digests were computed anew. Keep it, and the private key, elsewhere."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="the checkpoint, which must not exist yet")
        add_key(parser)

    def handle(self, *args: Any, file: Path, key: Path | None, **others: Any) -> None:
        """Write the file under another name until it is complete, and print what it covers."""
        options.prepare_database(dry_run=True)
        if os.path.lexists(file):  # also a link that leads nowhere
            raise CommandError(f"{file} exists already: choose another name.", returncode=COULD_NOT_RUN)
        unfinished = file.with_name(f"{file.name}.unfinished")
        conversations = events = 0
        try:
            signer = read_key(key_path(key))
            with unfinished.open("wb") as target:
                for step in checkpoints.write(target, signer):
                    conversations, events = conversations + step.conversations, events + step.events
                # Before the name is given: a crash must not leave a part of it under that name.
                target.flush()
                os.fsync(target.fileno())
            unfinished.replace(file)
        except KeyUnusable as error:
            raise CommandError(str(error), returncode=COULD_NOT_RUN) from error
        except OSError as error:
            raise CommandError(
                f"{file} cannot be written: {error.strerror}.", returncode=COULD_NOT_RUN
            ) from error
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
        covered = f"{counted(conversations, 'conversation')}, {counted(events, 'event')}"
        self.stdout.write(f"{file}: {covered}, signed by the key {signer.name}")
