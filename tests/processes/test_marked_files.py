"""A SQLite file and its write-ahead log after a kill: what does not belong together, and what is missing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import on_sqlite
from tests.support.people.clients import HTTP, Server
from tests.support.runner import migrated
from tests.support.wires.network import wait_until

pytestmark = [on_sqlite, pytest.mark.no_second_try]

OFTEN = {"conversations.engines.sqlite3.checkpoints.COUNT_S": 0}
"""Each look of the checkpoints counts: an older copy is known to be older at once."""
EVENTS = "/api/native/conversations/talk/events"


@pytest.fixture
def own(server: Server) -> Server:
    """A server on a file of its own, with a conversation."""
    migrated.make(str(server.file))
    server.start(DATABASE_URL="", constants=OFTEN)
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"}).raise_for_status()
    return server


def post(server: Server, id: str) -> int:
    frame = {"type": "event", "id": id, "event": {"action": "note"}}
    return HTTP.post(f"{server.url}{EVENTS}", json=frame).status_code


def mark_of(server: Server) -> dict[str, object]:
    """Return the mark, empty while there is none."""
    try:
        found: dict[str, object] = json.loads(Path(f"{server.file}-mark").read_text())
    except FileNotFoundError:
        return {}
    return found


def is_marked(server: Server) -> bool:
    """Store an event, and return whether the mark speaks of the log that there is."""
    post(server, f"another {len(events_of(server))}")
    log = log_of(server).read_bytes()[16:24]
    salts = [int.from_bytes(log[:4]), int.from_bytes(log[4:])]
    return mark_of(server).get("salts") == salts


def events_of(server: Server) -> list[str]:
    page = HTTP.get(f"{server.url}{EVENTS}").json()["events"]
    return [each["id"] for each in page]


def copied(server: Server) -> Path:
    """Return a copy of the database as it is now."""
    older = server.file.with_name("older")
    with closing(sqlite3.connect(server.file)) as source, closing(sqlite3.connect(older)) as target:
        source.backup(target)
    return older


def test_the_log_of_a_newer_file_is_not_applied_to_an_older_one_in_its_place(own: Server) -> None:
    assert post(own, "of both") == 200
    older = copied(own)
    with closing(sqlite3.connect(older)) as database:
        (before,) = database.execute("PRAGMA user_version").fetchone()
    wait_until(lambda: is_marked(own) and int(str(mark_of(own).get("base"))) > before)
    own.kill()
    older.replace(own.file)
    own.start(DATABASE_URL="", constants=OFTEN)
    assert events_of(own) == ["of both"]
    assert [post(own, f"after {number}") for number in range(20)] == [200] * 20
    (aside,) = own.file.parent.glob(f"{own.file.name}-wal.not-of-this-file-*")
    assert aside.name in own.log.read_text()
    assert HTTP.get(f"{own.url}/health").status_code == 200
    with closing(sqlite3.connect(own.file)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_the_log_of_a_killed_server_is_applied_to_its_own_file(own: Server) -> None:
    wait_until(lambda: is_marked(own))
    stored = events_of(own)
    for _ in range(3):
        own.kill()
        own.start(DATABASE_URL="", constants=OFTEN)
        assert post(own, f"after {len(stored)}") == 200
        stored.append(f"after {len(stored)}")
    assert events_of(own) == stored
    assert list(own.file.parent.glob("*not-of-this-file*")) == []
    assert "X-Warning" not in HTTP.get(f"{own.url}/health").headers


def test_events_that_a_damaged_log_has_lost_are_counted_at_the_start(own: Server) -> None:
    with closing(sqlite3.connect(own.file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM conversations_event").fetchall()  # nothing later leaves the log
        began = log_of(own).stat().st_size
        assert [post(own, f"event {number}") for number in range(10)] == [200] * 10
        wait_until(lambda: mark_of(own).get("events") == newest(own))
        own.kill()
        kept = {path: path.read_bytes() for path in (own.file, log_of(own), Path(f"{own.file}-mark"))}
    for path, content in kept.items():
        path.write_bytes(content)
    Path(f"{own.file}-shm").unlink(missing_ok=True)
    damage(log_of(own), (began + log_of(own).stat().st_size) // 2)
    own.start(DATABASE_URL="")
    lost = 10 - len(events_of(own))
    assert 0 < lost <= 10
    words = f": {lost} may be missing"
    assert words in HTTP.get(f"{own.url}/health").headers["X-Warning"]
    assert words in own.log.read_text()
    assert words in HTTP.get(f"{own.url}/admin/").text
    assert post(own, "later") == 200
    own.kill()
    own.start(DATABASE_URL="")
    assert words in HTTP.get(f"{own.url}/health").headers["X-Warning"]
    verified = own.run(["convserver", "verify"], DATABASE_URL="")
    assert (verified.returncode, words in verified.stderr) == (0, True)


def log_of(server: Server) -> Path:
    return Path(f"{server.file}-wal")


def newest(server: Server) -> int:
    """Return the newest number of an event."""
    with closing(sqlite3.connect(server.file)) as database:
        found = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'conversations_event'")
        return int(found.fetchone()[0])


def damage(path: Path, place: int) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))
