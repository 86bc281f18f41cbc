"""What is stored of each format's samples, compared with what somebody has read and found right.

After a change that is meant to store something else, write the files of `tests/data/golden/` anew and read
what `git diff` shows of them:

    GOLDEN=write python -m pytest tests/store/test_golden_imports.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation
from conversations.transcripts.sources import lines
from tests.support.data import stored
from tests.support.data.import_samples import DATA, SAMPLES, digest_of, imported

pytestmark = pytest.mark.one_engine

GOLDEN = DATA / "golden"


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file count as one that is being written to, however new a checkout is."""
    monkeypatch.setattr(lines, "FRESH_S", 0.0)


def everywhere_the_same(value: Any) -> Any:
    """Return a report without the ids of conversations and the place of the samples."""
    match value:
        case str():
            return value.replace(f"{DATA}/", "").replace(str(DATA), "")
        case dict():
            return {
                everywhere_the_same(name): everywhere_the_same(item)
                for name, item in value.items()
                if name != "conversation_id" and item != {}
            }
        case list():
            return [everywhere_the_same(item) for item in value]
    return value


@pytest.mark.parametrize("format", SAMPLES)
def test_what_is_stored_of_the_samples_is_what_was_found_right(format: str, alice: User) -> None:
    report = everywhere_the_same(imported(format))
    conversations = stored.dump(Conversation.objects.filter(owner=alice))
    found = stored.written({"report": stored.shortened(report), "conversations": conversations})
    file = GOLDEN / f"{format}.json"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.no_second_try
@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.sampled(4)
def test_an_import_that_is_repeated_changes_nothing_here_or_in_its_source(format: str, alice: User) -> None:
    source = digest_of(SAMPLES[format])
    imported(format)
    before = stored.dump(Conversation.objects.filter(owner=alice))
    imported(format)
    assert stored.dump(Conversation.objects.filter(owner=alice)) == before
    assert digest_of(SAMPLES[format]) == source


def test_each_golden_file_is_compared_with_something() -> None:
    assert {file.stem for file in Path(GOLDEN).iterdir()} == set(SAMPLES)
