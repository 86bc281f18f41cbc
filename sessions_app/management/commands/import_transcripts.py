"""`import_transcripts`: import other programs' conversations from their files; may be repeated."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from datetime import tzinfo
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, close_old_connections

from conversations.exceptions import ConversationError
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports import options
from sessions_app.imports.follow import FileFollower, FollowedAlready, only_one, told_to_end
from sessions_app.imports.importer import Importer
from sessions_app.imports.report import ConversationReport, Report
from sessions_app.imports.ways import WAYS, Found, Wanted, Way, guessed

ELSEWHERE = {"openhands-v1": "the directories of OpenHands V1 agent servers and their SDK"}
"""Formats with a command of their own."""
WHAT = "the format, guessed if left out, and a file or directory, by default the one that the program uses"


class Command(BaseCommand):
    """Import conversations."""

    help = (
        "Import other programs' conversations. What was imported before is skipped, so an import can be "
        "repeated after the source has grown. The source is never changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter  # keeps the lines of the table of formats
        described = {format.name: format.described for format in WAYS.values()} | ELSEWHERE
        width = max(map(len, described))
        parser.epilog = "Formats:\n" + "\n".join(
            f"  {name:{width}}  {what}" for name, what in described.items()
        )
        parser.add_argument("what", nargs="*", metavar="[FORMAT] [PATH]", help=WHAT)
        options.add_owner(parser)
        options.add_zone(parser)
        parser.add_argument(
            "--label", action="append", default=[], help="a label for each conversation; may be repeated"
        )
        parser.add_argument(
            "--follow", action="store_true", help="go on importing what the program writes, until Ctrl-C"
        )
        parser.add_argument(
            "--report", type=Path, metavar="FILE", help="write a report on every record, as JSON"
        )

    def handle(
        self,
        *args: Any,
        what: list[str],
        owner: str | None,
        dry_run: bool,
        label: list[str],
        report: Path | None,
        follow: bool,
        zone: tzinfo,
        **others: Any,
    ) -> None:
        """Print the outcome of each conversation; fail if one failed, or if there was none."""
        try:
            found, path = _source(what, may_be_empty=follow)
        except Unreadable as error:
            raise CommandError(f"{error}.") from error
        except OSError as error:
            raise CommandError(f"{error.filename} cannot be read: {error.strerror}.") from error
        options.prepare_database(dry_run=dry_run)
        wanted = Wanted(
            user=options.owner(owner, dry_run=dry_run), labels=tuple(label), is_dry=dry_run, zone=zone
        )
        if follow and report is not None:
            raise CommandError("Who follows has no end to report on: leave out --report or --follow.")
        if report is not None:
            _write(report, Report(format=found.name, path=str(path)))  # fail early
        if follow:
            self._follow(found, path, wanted)
            return
        told = self._import(found, path, wanted)
        if report is not None:
            _write(report, told)
        self._sum_up(told, is_dry=dry_run)

    def _follow(self, way: Way, path: Path, wanted: Wanted) -> None:
        """Import the present files and all later ones, until a signal ends the process."""
        if wanted.is_dry:
            raise CommandError("What is followed is stored: leave out --dry-run or --follow.")
        format = way.format
        if format is None or format.files is None:
            raise CommandError(f"{way.name} cannot be followed: leave out --follow.")
        importer = Importer(user=wanted.user, format=format.name, labels=wanted.labels)
        stop = told_to_end()
        what = f"{importer.format} {importer.owner_id} {path.resolve()}"
        try:
            with only_one(settings.CONFIGURATION.data_dir, what):
                self._say(f"Following {path}. Ctrl-C ends it.")
                FileFollower(
                    importer=importer, format=format, files=format.files, path=path, said=self._say
                ).run(stop)
        except FollowedAlready as error:
            raise CommandError(str(error)) from error

    def _say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()

    def _import(self, way: Way, path: Path, wanted: Wanted) -> Report:
        told = Report(format=way.name, path=str(path))
        try:
            for found in way.found(path, wanted):
                self._take(found, told, is_dry=wanted.is_dry)
        except (Unreadable, OSError) as error:  # what was read before is imported, and in the report
            told.failed[str(path)] = str(error)
            self.stdout.write(f"{path}: failed. {error}")
        return told

    def _take(self, found: Found, told: Report, *, is_dry: bool) -> None:
        try:
            done = found.take()
        except (ConversationError, Unreadable, DatabaseError, InterfaceError) as error:
            told.failed[found.source_id] = str(error)
            self.stdout.write(f"{found.source_id}: failed. {error}")
            close_old_connections()  # the next conversation may find the database back
            return
        told.conversations.append(done)
        self.stdout.write(f"{found.source_id}: {_outcome(done, is_dry=is_dry)}")
        for what, counted in (("skipped", done.skipped), ("refused", done.refused), ("noted", done.noted)):
            for reason, count in counted.items():
                self.stdout.write(f"  {what}: {reason}: {count}")

    def _sum_up(self, told: Report, *, is_dry: bool) -> None:
        found = len(told.conversations) + len(told.failed)
        added = sum(each.events_added for each in told.conversations)
        here = sum(each.events_already_here for each in told.conversations)
        verb = "would import" if is_dry else "imported"
        self.stdout.write(
            f"Conversations: {found}, failed: {len(told.failed)}; "
            f"{verb} {added} events, {here} already there."
        )
        if not found:
            raise CommandError(f"There is no conversation in {told.path}.")
        if told.failed:
            raise CommandError(f"Failed: {len(told.failed)} of {found} conversations.")


def _source(what: list[str], *, may_be_empty: bool) -> tuple[Way, Path]:
    """Return the format and the path of the options. Raise Unreadable, and CommandError."""
    name = what[0] if what and what[0] in WAYS else None
    paths = what if name is None else what[1:]
    if len(paths) > 1 or not what:
        raise CommandError("Name a format, a path, or both: convserver import [FORMAT] [PATH].")
    if name is None:
        path = Path(paths[0]).expanduser()
        return guessed(path), path
    format = WAYS[name]
    usual = paths[0] if paths else format.default_path
    if usual is None:
        raise CommandError(f"Name the path as well: {format.described}.")
    path = Path(usual).expanduser()
    if not may_be_empty and not format.is_source(path):
        raise CommandError(f"There is no conversation of this format in {path}.")
    return format, path


def _write(file: Path, told: Report) -> None:
    try:
        file.write_text(json.dumps(told.as_json(), indent=2) + "\n")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}.") from error


def _outcome(done: ConversationReport, *, is_dry: bool) -> str:
    if done.conversation_id is None and not is_dry:
        return f"skipped. {', '.join(done.skipped or done.noted)}."
    verb = "would import" if is_dry else "imported"
    said = (
        f"{verb} {done.events_added} events, {done.events_already_here} already there, "
        f"of {done.found} records; {done.skipped.total() + done.refused.total()} skipped"
    )
    return f"{said}, secrets masked in {done.events_masked}." if done.events_masked else f"{said}."
