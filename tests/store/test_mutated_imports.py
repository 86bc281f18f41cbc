"""Damaged sources of every format: what can be read is stored whole, the rest named, and nothing doubled."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC
from functools import partial
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from conversations.exceptions import ConversationError
from conversations.models import Conversation
from conversations.transcripts import openhands_v1 as v1_directories
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.ways import WAYS, Wanted
from sessions_app.openhands_v1 import imports as openhands_v1
from tests.support.data.import_samples import OPENHANDS_V1, SAMPLES
from tests.support.data.mutated_sources import mutated_files

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file count as one that is being written to."""
    monkeypatch.setattr(lines, "FRESH_S", 0.0)


def found(format: str, path: Path, user: User) -> Iterator[Callable[[], int]]:
    """Yield what imports each conversation of a source, and returns how many events it added."""
    if format == OPENHANDS_V1:
        for directory in v1_directories.directories(path):
            yield partial(directory_taken, directory, user)
        return
    for each in WAYS[format].found(path, Wanted(user=user)):
        yield partial(report_taken, each.take)


def report_taken(take: Callable[[], ConversationReport]) -> int:
    return take().events_added


def directory_taken(directory: Path, user: User) -> int:
    persisted = v1_directories.read(directory, zone=UTC, skip=lambda _name, _reason: None)
    imported = openhands_v1.import_persisted(user, persisted, zone=UTC, skip=lambda _name, _reason: None)
    assert not imported.refused
    return imported.added


def import_from(format: str, path: Path, user: User) -> None:
    """Import what can be read of a source: of each conversation all, or nothing if it is refused."""
    with suppress(Unreadable):
        for take in found(format, path, user):
            before, added = sum(lengths().values()), 0
            with suppress(ConversationError, Unreadable):
                added = take()
            assert sum(lengths().values()) == before + added


def lengths() -> dict[str, int]:
    return dict(Conversation.objects.values_list("public_id", "next_seq"))


@pytest.mark.no_second_try
@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.sampled(3)
def test_a_damaged_source_is_imported_as_far_as_it_can_be_and_once(
    format: str, alice: User, tmp_path: Path, chance: random.Random, is_full: bool
) -> None:
    copy = Path(shutil.copytree(SAMPLES[format], tmp_path / "samples"))
    for _ in range(10_000 if is_full else 10):
        seed = chance.randrange(2**32)
        with mutated_files(copy, seed, is_sealed=bool(seed % 2)), transaction.atomic():
            import_from(format, copy, alice)
            stored = lengths()
            import_from(format, copy, alice)
            assert lengths() == stored, seed
            transaction.set_rollback(True)
