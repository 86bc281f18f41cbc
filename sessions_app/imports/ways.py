"""The ways in, by the name of the format: those of other programs, and this server's own exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from typing import NamedTuple

from django.contrib.auth.models import User

from conversations.transcripts.sources import formats, openhands_v0, own
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.chats import exports
from conversations.transcripts.sources.formats import FORMATS, Format
from conversations.transcripts.sources.nodes import Empty, Unreadable
from sessions_app.imports.importer import Importer
from sessions_app.imports.openhands_v0 import OpenHandsV0Importer
from sessions_app.imports.own import OwnImporter
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.watching import UNWATCHED, Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Who imports, and how."""

    user: User
    labels: tuple[str, ...] = ()
    is_dry: bool = False
    zone: tzinfo = UTC
    """Of times that the source has without one."""
    watch: Watch = UNWATCHED


class Found(NamedTuple):
    """A conversation of a source that can be imported."""

    source_id: str
    take: Callable[[], ConversationReport]
    """Import it. Raise ConversationError or Unreadable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How conversations of one format are imported."""

    name: str
    described: str
    default_path: str | None
    is_source: Callable[[Path], bool]
    """Raises Unreadable."""
    found: Callable[[Path, Wanted], Iterator[Found]]
    """Raises Unreadable."""
    holds: Callable[[Archive], bool] | None = None
    """Says whether an open archive is one of this format, as it is; raises Unreadable."""
    format: Format | None = None
    """The format of another program, which can be followed if it has `files`.

    None for this server's exports and OpenHands V0.
    """


def guessed(path: Path) -> Way:
    """Return the way in for what is at the path. Raise Empty, and Unreadable if it is in no known format."""
    for way in (OWN, OPENHANDS_V0):
        if way.is_source(path):
            return way
    return WAYS[formats.guessed(path).name]


def guessed_of(archive: Archive, check: Callable[[], None]) -> Way | None:
    """Return the way in for an open archive as it is, or None. Raise Empty.

    `check` is called between, and may raise.
    """
    for way in WAYS.values():
        check()
        with suppress(Unreadable):
            if way.holds is not None and way.holds(archive):
                return way
    if exports.is_empty(archive):
        raise Empty
    return None


def _of_format(format: Format) -> Way:
    def found(path: Path, wanted: Wanted) -> Iterator[Found]:
        importer = Importer(
            user=wanted.user,
            format=format.name,
            labels=wanted.labels,
            is_dry=wanted.is_dry,
            watch=wanted.watch,
        )
        for transcript in format.transcripts(path):
            yield Found(transcript.source_id, partial(importer.take, transcript))

    return Way(
        name=format.name,
        described=format.described,
        default_path=format.default_path,
        is_source=format.is_source,
        holds=format.holds,
        found=found,
        format=format,
    )


def _own(path: Path, wanted: Wanted) -> Iterator[Found]:
    importer = OwnImporter(user=wanted.user, labels=wanted.labels, is_dry=wanted.is_dry, watch=wanted.watch)
    for exported in own.exports(path):
        yield Found(exported.source_id, partial(importer.take, exported))


def _openhands_v0(path: Path, wanted: Wanted) -> Iterator[Found]:
    importer = OpenHandsV0Importer(
        user=wanted.user,
        labels=wanted.labels,
        is_dry=wanted.is_dry,
        zone=wanted.zone,
        watch=wanted.watch,
    )
    for stored in openhands_v0.found(path):
        yield Found(stored.sid, partial(importer.take, stored))


OWN = Way(
    name=own.NAME,
    described="this server's own exports as JSON lines: a file, a directory or a zip file",
    default_path=None,
    is_source=own.is_source,
    holds=own.holds,
    found=_own,
)
OPENHANDS_V0 = Way(
    name=openhands_v0.NAME,
    described="the file store of an OpenHands V0 server",
    default_path="~/.openhands",
    is_source=openhands_v0.is_source,
    found=_openhands_v0,
)
WAYS: Mapping[str, Way] = {way.name: way for way in (OWN, OPENHANDS_V0, *map(_of_format, FORMATS.values()))}
