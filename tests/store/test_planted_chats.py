"""Marks planted into every member of the samples of chats: each is in an event, a record or the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.import_samples import SAMPLES
from tests.planted_marks import Marks

FILES = {
    "chatgpt": "conversations.json",
    "claude-ai": "conversations.json",
    "open-webui": "chat-export-1770109999000.json",
}


EMPTY = {"chatgpt": 3, "claude-ai": 3, "open-webui": 7}
"""The chat of each sample in which nobody says anything: it is counted and not stored."""
LINKS = frozenset({"children", "childrenIds", "current_node", "currentId", "parent", "parentId"})
"""Members that say which message follows which."""


def planted(format: str, marks: Marks, into: Path) -> Path:
    """Write a copy of a sample with marks; return its file."""
    sample = json.loads((SAMPLES[format] / FILES[format]).read_bytes())
    into.mkdir(exist_ok=True)
    file = into / FILES[format]
    file.write_text(json.dumps([marks.planted(chat, (number,)) for number, chat in enumerate(sample)]))
    return file


@pytest.mark.parametrize("format", FILES)
def test_no_member_of_an_export_is_lost(format: str, alice: User, tmp_path: Path) -> None:
    marks = Marks(is_whole=lambda path, _: path == (EMPTY[format],) or (bool(path) and path[-1] in LINKS))
    assert marks.lost(format, planted(format, marks, tmp_path), alice) == []
    assert len(marks.at) > 200
