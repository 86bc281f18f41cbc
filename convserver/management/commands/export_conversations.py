"""`export_conversations`: write all conversations of a user into a zip file, or into a directory."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from conversations.exceptions import StoreUnavailable
from convserver.exports import account
from convserver.exports.openhands import Layout
from sessions_app.imports import options

NAME_MAX_BYTES = 255  # of one part of a path, in all usual file systems


class Command(BaseCommand):
    help = (
        "Write all conversations of a user, without deleted ones, into a zip file: each as JSON lines, which "
        "`convserver import` takes, and attachments beside. With --layout as OpenHands keeps them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file", type=Path, help="the zip file, which must not exist yet; with --layout also a directory"
        )
        parser.add_argument(
            "--layout",
            type=Layout,
            choices=list(Layout),
            help="write the files as OpenHands keeps them, for its own programs; into a zip file if the name "
            "ends with .zip, else into a directory (default: JSON lines)",
        )
        parser.add_argument(
            "--workspaces", action="store_true", help="add the files of workspaces, a zip file for each"
        )
        parser.add_argument(
            "--owner", metavar="USERNAME", help="whose conversations; required in accounts mode"
        )

    def handle(
        self,
        *args: Any,
        file: Path,
        owner: str | None,
        layout: Layout | None = None,
        workspaces: bool = False,
        **_: Any,
    ) -> None:
        """Write it under another name until it is complete, and say how much it is."""
        options.prepare_database(dry_run=True)
        user = options.owner(owner, dry_run=True, may_be_closed=True)
        if os.path.lexists(file):
            raise CommandError(f"{file} exists already: choose another name.")
        unfinished = file.with_name(f"{file.name}.unfinished")
        is_directory = layout is not None and file.suffix != ".zip"
        parts: dict[str, Any] = {"layout": layout, "with_workspaces": workspaces}
        try:
            if is_directory:
                unfinished.mkdir()  # outside the block below, which would remove what another export fills
            try:
                if is_directory:
                    said = f"{_fill_directory(unfinished, account.files(user, **parts)):,} files"
                else:
                    said = f"{_write_zip(unfinished, account.pieces(user, **parts)):,} bytes"
                unfinished.replace(file)  # under its own name a file is always complete
            finally:
                if is_directory:
                    shutil.rmtree(unfinished, ignore_errors=True)
                else:
                    with suppress(OSError):
                        unfinished.unlink(missing_ok=True)
        except FileExistsError as error:
            raise CommandError(
                f"{unfinished} exists already: remove it unless an export fills it."
            ) from error
        except (OSError, StoreUnavailable) as error:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise CommandError(f"{file} cannot be written: {reason}.") from error
        self.stdout.write(f"{file}: {said}")


def _write_zip(path: Path, pieces: Iterable[bytes]) -> int:
    """Return the number of bytes."""
    with path.open("wb") as target:
        for piece in pieces:
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())  # before it gets its name: after a crash no cut file has it
    return path.stat().st_size


def _written(path: str) -> Path:
    """Return a path whose last part fits into a file system; the beginning and the suffix stay."""
    place = Path(path)
    name = place.name.encode()
    if len(name) <= NAME_MAX_BYTES:
        return place
    # Two long names may begin alike.
    end = f"-{sha256(name).hexdigest()[:16]}{place.suffix[:20]}"
    return place.with_name(name[: NAME_MAX_BYTES - len(end.encode())].decode(errors="ignore") + end)


def _fill_directory(directory: Path, files: Iterable[tuple[str, bytes | Iterator[bytes]]]) -> int:
    """Return the number of files."""
    count = 0
    for path, content in files:
        # As it is yielded, since the next step reads on: a log is one page at a time in memory.
        place = directory / _written(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as target:
            target.writelines([content] if isinstance(content, bytes) else content)
        count += 1
    return count
