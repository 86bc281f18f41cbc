"""Marks planted into every member of documents of chats: each is in an event, a record or the report."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.support.data.import_samples import SAMPLES
from tests.support.data.planted_marks import Marks

pytestmark = pytest.mark.one_engine

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


LEFT_OUT = frozenset({"anchor_activity_scenes", "anchor_scene_index", "_active_turn_token"})
"""What hermes-webui keeps for its screen, which is noted, and its ids of turns."""


def copied(format: str, marks: Marks, into: Path, *, names: str) -> Path:
    """Copy the files of a sample, with marks in those that are named so and that are JSON objects."""
    copy = Path(shutil.copytree(SAMPLES[format], into / SAMPLES[format].name))
    for file in sorted(copy.rglob(names)):
        try:
            value = json.loads(file.read_bytes())
        except ValueError:
            continue
        if isinstance(value, dict) and not file.name.startswith("_"):
            file.write_text(json.dumps(marks.planted(value, (file.name,))))
    return copy


def test_no_member_of_a_session_of_hermes_is_lost(alice: User, tmp_path: Path) -> None:
    # Nobody says anything any more in the session that was cleared.
    marks = Marks(
        is_whole=lambda path, _: path[-1] in LEFT_OUT or path[0] == "cleared00001.json", adds_items=False
    )
    assert marks.lost("hermes-webui", copied("hermes-webui", marks, tmp_path, names="*.json"), alice) == []
    assert len(marks.at) > 500


def test_no_member_of_the_journal_of_a_run_of_hermes_is_lost(alice: User, tmp_path: Path) -> None:
    marks = Marks(adds_items=False)
    copy = Path(shutil.copytree(SAMPLES["hermes-webui"], tmp_path / SAMPLES["hermes-webui"].name))
    [journal] = copy.rglob("_run_journal/running*/*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines() if _is_whole(line)]
    events.insert(2, {**events[0], "event": "later_kind", "type": "later_kind", "payload": {"said": "x"}})
    journal.write_text(
        "".join(f"{json.dumps(marks.planted(each, (at,)))}\n" for at, each in enumerate(events))
    )
    assert marks.lost("hermes-webui", copy, alice) == []
    assert len(marks.at) > 30


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def test_no_column_of_a_database_of_hermes_is_lost(alice: User, tmp_path: Path) -> None:
    marks = Marks()
    calls = [{"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}]
    row = {"content": "listed", "finish_reason": "stop", "reasoning_details": "r", "a_later_column": "x"}
    session = {"title": "A title", "cwd": "/srv", "a_later_column": "y"}
    rows = {
        "messages": {
            **{name: text for name, text in marks.planted(row, ("row",)).items() if name in row},
            "tool_calls": json.dumps(marks.planted(calls, ("calls",))),
            "session_id": "s",
            "role": "assistant",
            "timestamp": 3.5,
        },
        "sessions": {
            **{name: text for name, text in marks.planted(session, ("session",)).items() if name in session},
            "id": "s",
            "source": "cli",
        },
    }
    (tmp_path / "webui" / "sessions").mkdir(parents=True)
    (tmp_path / "webui" / "sessions" / "other.json").write_text('{"session_id": "other", "messages": []}')
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        for table, values in rows.items():
            database.execute(f"CREATE TABLE {table} ({', '.join(values)})")
            places = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO {table} VALUES ({places})", list(values.values()))
        database.commit()
    lost = marks.lost("hermes-webui", tmp_path / "webui", alice)
    assert lost == ["row.planted", "session.planted"]  # which no column has


def test_no_member_of_an_event_of_a_v1_server_is_lost(alice: User, tmp_path: Path) -> None:
    marks = Marks()
    copy = copied("openhands-v1", marks, tmp_path, names="event-*.json")
    assert marks.lost("openhands-v1", copy, alice) == []
    assert len(marks.at) > 200
