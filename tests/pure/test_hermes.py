"""The sessions of hermes-webui: which copy of a conversation counts, and what its rows say."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from conversations.confined import processes, sqlite_files
from conversations.transcripts.sources import hermes
from conversations.transcripts.sources.hermes import heads, scanning
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import (
    Author,
    Instructions,
    Kept,
    Message,
    Node,
    Record,
    Summary,
    ToolCall,
    ToolResult,
    Transcript,
    Unreadable,
)
from tests.support.data import hostile_databases
from tests.support.data.mutations import mutated, mutated_json

STATE = Path(__file__).parents[1] / "data" / "hermes-webui" / "webui"
SESSIONS = STATE / "sessions"
ONE = ["question one", "answer one"]
TWO = ["question two", "answer two"]
THREE = ["question three", "answer three"]


def read(path: Path = STATE, *, is_growing: bool = False) -> dict[str, Transcript]:
    return {each.source_id: each for each in hermes.transcripts(path, is_growing=is_growing)}


def said(transcript: Transcript, *, own: bool = False) -> list[str]:
    """Return what is said, without what is only kept."""
    nodes = islice(transcript.nodes(), transcript.shared_count if own else 0, None)
    return [text for node in nodes for part in node.parts if (text := shown(part))]


def shown(part: object) -> str:
    match part:
        case Message():
            return part.text or f"({part.reasoning})"
        case ToolCall():
            return f"{part.tool} {part.arguments}"
        case ToolResult():
            return f"-> {part.text}"
        case Summary() | Instructions():
            return f"[{type(part).__name__}] {part.text}"
    return ""


def skipped(transcript: Transcript) -> Counter[str]:
    return Counter(node.skipped for node in transcript.nodes() if node.skipped)


def noted(transcript: Transcript) -> Counter[str]:
    return Counter(note for node in transcript.nodes() for note in node.noted)


def branches(found: dict[str, Transcript], source_id: str) -> list[Transcript]:
    return [each for name, each in found.items() if name.startswith(f"{source_id}/")]


def records(transcript: Transcript, why: Kept) -> list[Record]:
    parts = [part for node in transcript.nodes() for part in node.parts]
    return [part for part in parts if isinstance(part, Record) and part.why is why]


def digest_of(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file.relative_to(directory)): (
            hashlib.sha256(file.read_bytes()).hexdigest(),
            file.stat().st_mtime_ns,
        )
        for file in directory.rglob("*")
        if file.is_file()
    }


def written(folder: Path, session_id: str, messages: list[Any], *, end: str = ".json", **told: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{session_id}{end}"
    file.write_text(json.dumps({"session_id": session_id, **told, "messages": messages}, indent=2))
    return file


def rows(*texts: str) -> list[dict[str, str]]:
    return [
        {"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)
    ]


def test_sessions_are_recognised() -> None:
    paths = (STATE, SESSIONS, SESSIONS / "running00001.json", SESSIONS / "onlybackup01.json.bak")
    assert all(hermes.is_source(path) for path in paths)
    assert not hermes.is_source(SESSIONS / "_index.json")


def test_a_finished_turn_is_read() -> None:
    talk = read()["84988f157307"]
    assert said(talk) == ["Wie groß ist der Rabatt?", "Zehn Prozent."]
    assert (talk.title, talk.model, talk.directory) == ("Rabatt", "stub-model", "/srv/shop")
    assert (talk.metrics.prompt_tokens, talk.metrics.completion_tokens, talk.metrics.accumulated_cost) == (
        120,
        8,
        0.25,
    )
    assert talk.created_at is not None
    assert talk.created_at.isoformat() == "2026-11-20T08:48:48+00:00"
    assert [node.at.isoformat() for node in talk.nodes() if node.at] == [
        "2026-11-20T08:48:48.298556+00:00",
        "2026-11-20T08:48:48.317895+00:00",
    ]


def test_what_is_told_beside_the_rows_is_kept_without_the_rows_again() -> None:
    kept = list(read()["84988f157307"].nodes())[-1].parts[0]
    assert isinstance(kept, Record)
    assert isinstance(kept.value, dict)
    assert kept.value["future_setting"] == {"level": 3}
    prompt, answer = kept.value["context_messages"]
    assert prompt["content"].startswith("[Workspace::v1:")
    assert answer == 2
    assert "messages" not in kept.value


def test_a_running_turn_is_its_prompt_and_what_was_answered() -> None:
    talk = read()["running00001"]
    assert said(talk) == [
        *ONE,
        "Count the files.",
        "terminal {'command': 'ls'}",
        "-> a\nb",
        "There are",
    ]
    call = next(part for node in talk.nodes() for part in node.parts if isinstance(part, ToolCall))
    assert (call.thought, call.reasoning) == ("I will look.", "List them.")
    assert noted(talk) == {
        "was being answered": 1,
        "from the run journal": 3,
        "lines of the run journal are damaged": 3,
        "it was cut off": 1,
        "only the turn journal has it": 1,
    }
    assert not skipped(talk)


def test_a_prompt_that_only_the_turn_journal_has_is_kept_as_a_record() -> None:
    talk = read()["running00001"]
    (kept,) = (each for each in records(talk, Kept.BOOKKEEPING) if each.name == "prompt of turn journal")
    assert isinstance(kept.value, dict)
    assert (kept.value["content"], kept.value["workspace"]) == ("Never answered.", "/srv/shop")
    later = [node for node in read(is_growing=True)["running00001"].nodes() if node.place == "turn journal 2"]
    assert [node.skipped for node in later] == ["it is still being written"]


def test_what_still_changes_is_left_for_later() -> None:
    talk = read(is_growing=True)["running00001"]
    assert said(talk) == [*ONE, "Count the files."]
    assert skipped(talk)["it is still being written"] == 6


def test_a_turn_that_was_stopped_keeps_its_partial_answer_once() -> None:
    talk = read()["stopped00001"]
    assert said(talk) == ["cancel me", "text so far"]
    assert skipped(talk) == {"the row before it says the same": 1}
    assert [each.name for each in records(talk, Kept.BOOKKEEPING)] == ["details", "error", "session"]


def test_a_recovered_turn_says_so() -> None:
    talk = read()["recovered001"]
    assert said(talk) == ["question 6", "text so far"]
    assert noted(talk) == {"the program rebuilt it after a crash": 2}


def test_rows_of_every_kind_are_read() -> None:
    talk = read()["tools0000001"]
    assert said(talk) == [
        "[Instructions] Be brief.",
        "What is in here?",
        "terminal {'command': 'ls'}",
        "note not json",
        "-> file1\nfile2",
        "Hurry up.",
        "(Read it.)",
        "read {'path': 'file1'}",
        "-> [screenshot]",
        "Two files; `<think>` is a tag.",
        "And hidden ones?",
        "None",
        "[Summary] [CONTEXT COMPACTION] The user asked for a listing.",
        "Done.",
        "search {'query': 'hidden'}",
        "-> nothing",
        "-> no call",
    ]
    assert skipped(talk) == {"a later row is the same answer, further on": 1}
    assert [each.name for each in records(talk, Kept.UNKNOWN)] == ["row of narrator", "row", "row"]
    assert [each.name for each in records(talk, Kept.BOOKKEEPING)] == [
        *("control prompt", "control prompt", "details", "verification", "session"),
    ]


def test_images_reasoning_and_authors_are_kept() -> None:
    parts = [part for node in read()["tools0000001"].nodes() for part in node.parts]
    messages = [part for part in parts if isinstance(part, Message)]
    assert messages[0].images == ("data:image/png;base64,iVBORw0KGgo=",)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    assert (calls[0].thought, calls[0].reasoning) == ("I look.", "A listing will do.")
    assert next(each for each in messages if each.text.startswith("Two")).reasoning == "Two files."
    users = [each.text for each in messages if each.author is Author.USER]
    assert users == ["What is in here?", "Hurry up.", "And hidden ones?"]


def test_a_file_without_a_backup_counts() -> None:
    assert said(read()["delegated001"]) == ["question sub", "answer sub"]


@pytest.mark.parametrize(
    ("session_id", "why"),
    [
        ("badbackup001", "the backup cannot be read"),
        ("foreignback1", "the backup is of another conversation"),
    ],
)
def test_a_backup_that_is_of_no_use_is_named(session_id: str, why: str) -> None:
    found = read()
    assert said(found[session_id]) == ONE
    assert skipped(found[session_id]) == {why: 1}
    assert not branches(found, session_id)


def test_what_only_the_backup_of_a_longer_file_has_is_a_branch() -> None:
    found = read()
    assert said(found["grown0000001"]) == [*ONE, *TWO, *THREE]
    [branch] = branches(found, "grown0000001")
    assert said(branch, own=True) == ["question other", "answer other"]
    assert branch.leaves is not None
    assert (branch.leaves.source_id, branch.shared_count, branch.is_active) == ("grown0000001", 2, False)
    assert branch.leaves.after == list(found["grown0000001"].nodes())[1].node_id


@pytest.mark.parametrize(
    ("session_id", "left", "removed"),
    [
        ("cleared00001", [], 4),
        ("cleared00002", ["question new", "answer new"], 4),
        ("undone000001", ONE, 2),
    ],
)
def test_what_the_user_removed_stays_removed(session_id: str, left: list[str], removed: int) -> None:
    found = read()
    assert said(found[session_id]) == left
    assert skipped(found[session_id])["the user removed it"] == removed
    assert not branches(found, session_id)


def test_what_a_summary_took_the_place_of_is_a_branch_that_is_not_shown() -> None:
    found = read()
    assert said(found["compacted001"]) == ["[Summary] [CONTEXT COMPACTION] They talked.", *THREE]
    [branch] = branches(found, "compacted001")
    assert said(branch) == [*ONE, *TWO, *THREE]
    assert not branch.is_active


def test_a_loss_is_made_good_from_the_backup() -> None:
    found = read()
    talk = found["shortened001"]
    assert said(talk) == [*ONE, *TWO]
    assert noted(talk) == {"from the backup": 2}
    assert talk.title == "Short"  # the file was written last
    assert not branches(found, "shortened001")


def test_two_copies_that_went_on_differently_are_both_there() -> None:
    found = read()
    assert said(found["diverged0001"]) == [*ONE, *TWO, *THREE]
    assert noted(found["diverged0001"]) == {"from the backup": 4}
    [branch] = branches(found, "diverged0001")
    assert said(branch, own=True) == ["question mine", "answer mine"]


def test_a_damaged_file_is_salvaged_and_its_rest_kept() -> None:
    talk = read()["damaged00001"]
    assert said(talk) == [*ONE, "question two"]
    assert noted(talk)["salvaged out of a damaged file"] == 3
    [lost] = records(talk, Kept.DAMAGED)
    content = (SESSIONS / "damaged00001.json").read_bytes()
    assert isinstance(lost.value, str)
    assert content.endswith(lost.value.encode())
    assert talk.title == "Torn"


def test_a_damaged_file_gives_way_to_a_longer_backup() -> None:
    talk = read()["damaged00002"]
    assert said(talk) == [*ONE, *TWO]
    assert noted(talk)["from the backup"] == 2
    assert len(records(talk, Kept.DAMAGED)) == 1


def test_a_damaged_file_that_is_longer_than_its_backup_counts() -> None:
    talk = read()["damaged00003"]
    assert said(talk) == [*ONE, "question two", *THREE]
    assert len(records(talk, Kept.DAMAGED)) == 1


def test_a_damaged_file_and_a_backup_that_differ_are_both_there(tmp_path: Path) -> None:
    file = written(tmp_path, "a", rows("1", "2", "3", "4", "5"))
    file.write_bytes(file.read_bytes()[:-12])
    written(tmp_path, "a", rows("1", "2", "other"), end=".json.bak")
    found = read(tmp_path)
    assert said(found["a"]) == ["1", "2", "3", "4"]
    assert said(branches(found, "a")[0], own=True) == ["other"]


def test_a_damaged_file_without_a_backup_is_completed_from_the_run_journal(tmp_path: Path) -> None:
    file = written(tmp_path, "a", rows("1", "2", "3", "4"))
    file.write_bytes(file.read_bytes()[:120])
    done = {"event": "done", "payload": {"session": {"messages": rows("1", "2", "3", "4")}}}
    (tmp_path / "_run_journal/a").mkdir(parents=True)
    (tmp_path / "_run_journal/a/b.jsonl").write_text(json.dumps(done) + "\n")
    talk = read(tmp_path)["a"]
    assert said(talk) == ["1", "2", "3", "4"]
    assert noted(talk)["from the run journal"] == 3


def test_a_backup_alone_is_the_conversation() -> None:
    talk = read()["onlybackup01"]
    assert said(talk) == ONE
    assert noted(talk) == {"from the backup": 2}


def test_a_deleted_conversation_stays_deleted() -> None:
    talk = read()["deleted00001"]
    assert talk.is_empty
    assert said(talk) == []
    assert skipped(talk) == {"the conversation was deleted": 2}


def test_a_file_that_a_turn_wrote_again_after_deletion_counts(tmp_path: Path) -> None:
    written(tmp_path, "a", rows("1", "2"))
    (tmp_path / "_deleted_webui_sessions.json").write_text('{"version": 1, "ids": ["a"]}')
    assert said(read(tmp_path)["a"]) == ["1", "2"]


def test_a_conversation_that_nobody_has_is_none() -> None:
    assert "ghost0000001" not in read()


def test_a_conversation_that_went_on_after_a_summary_is_joined() -> None:
    talk = read()["continued001"]
    assert said(talk) == [*ONE, *TWO, "[Summary] [CONTEXT COMPACTION] They talked.", *THREE]
    assert talk.leaves is not None
    assert (talk.leaves.source_id, talk.shared_count) == ("z_snapshot01", 4)


def test_a_fork_begins_with_what_it_shares() -> None:
    talk = read()["fork00000001"]
    assert talk.leaves is not None
    assert (talk.leaves.source_id, talk.shared_count) == ("grown0000001", 4)
    assert said(talk, own=True) == ["What else?", "Nothing."]


def test_a_delegated_conversation_is_below_the_one_that_started_it() -> None:
    assert read()["delegated001"].parent_id == "84988f157307"


def test_those_that_others_refer_to_come_first() -> None:
    order = list(read())
    for before, after in (("z_snapshot01", "continued001"), ("grown0000001", "fork00000001")):
        assert order.index(before) < order.index(after)
    assert list(read(SESSIONS / "continued001.json")) == ["z_snapshot01", "continued001"]


def test_conversations_that_continue_each_other_are_all_read(tmp_path: Path) -> None:
    for name, parent in (("a", "b"), ("b", "a"), ("c", "c")):
        written(tmp_path, name, rows(name), parent_session_id=parent, pre_compression_snapshot=True)
    assert set(read(tmp_path)) == {"a", "b", "c"}


def test_a_conversation_is_read_although_the_one_before_it_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "a.json").symlink_to(tmp_path / "elsewhere")
    written(tmp_path, "b", rows("1"), parent_session_id="a")
    (tmp_path / "b.json.bak").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "b.json"):
        assert said(read(path)["b"]) == ["1"]


def test_of_two_files_with_one_id_the_longer_one_counts(tmp_path: Path) -> None:
    written(tmp_path, "a", rows("1", "2"))
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "session_x.json").write_text(
        json.dumps(json.loads(text) | {"messages": rows("1", "2", "3", "4")}, indent=2)
    )
    found = read(tmp_path)
    assert list(found) == ["a"]
    assert said(found["a"]) == ["1", "2", "3", "4"]


def test_every_row_of_every_copy_is_accounted_for() -> None:
    found = read()
    for source_id in {name.split("/")[0] for name in found}:
        there: Counter[str] = Counter()
        for end in (".json", ".json.bak"):
            there |= Counter(map(json.dumps, document_of(SESSIONS / f"{source_id}{end}", source_id)))
        nodes = list(found[source_id].nodes())
        for branch in branches(found, source_id):
            nodes += islice(branch.nodes(), branch.shared_count, None)
        of_rows = [node for node in nodes if node.place.startswith(("row", "backup row"))]
        assert len(of_rows) >= there.total(), source_id


def document_of(file: Path, session_id: str) -> list[Any]:
    """Return the rows of a copy that is whole, and of this conversation."""
    try:
        document: Any = scanning.value(file.read_bytes())
    except (OSError, Damaged):
        return []
    if not isinstance(document, dict) or document.get("session_id") != session_id:
        return []
    messages = document.get("messages")
    return messages if isinstance(messages, list) else []


def test_ids_stay_when_rows_get_times_ids_and_figures(tmp_path: Path) -> None:
    file = written(tmp_path, "a", rows("1", "2", "1"))
    before = [node.node_id for node in read(tmp_path)["a"].nodes()]
    later = [
        row | {"id": place, "timestamp": 1e9, "_turnTps": 2.5}
        for place, row in enumerate(rows("1", "2", "1"))
    ]
    written(tmp_path, "a", [*later, *rows("3")])
    after = [node.node_id for node in read(file)["a"].nodes()]
    assert after[:3] == before[:3]
    assert len(set(after)) == len(after)


def test_a_pending_prompt_is_the_same_node_once_it_is_a_row(tmp_path: Path) -> None:
    told: dict[str, Any] = {"pending_user_message": "1", "pending_started_at": 5.5, "active_stream_id": "s"}
    written(tmp_path, "a", [], **told)
    pending = next(iter(read(tmp_path)["a"].nodes()))
    row = {"role": "user", "content": "1", "timestamp": 5.5, "_active_turn_token": "s:5.5"}
    for more in ({}, told):  # saved with the row, before and after the turn was over
        written(tmp_path, "a", [row], **more)
        nodes = list(read(tmp_path)["a"].nodes())
        assert nodes[0].node_id == pending.node_id
        assert [part for node in nodes for part in node.parts if isinstance(part, Message)] == [
            Message(author=Author.USER, text="1")
        ]


def test_the_same_words_on_purpose_are_said_as_often(tmp_path: Path) -> None:
    written(tmp_path, "a", rows("1", "1", "1", "1"))
    assert said(read(tmp_path)["a"]) == ["1", "1", "1", "1"]


@pytest.fixture
def with_database(tmp_path: Path) -> Path:
    """A state directory beside a database with a conversation of its own, and one that a file has."""
    state = tmp_path / "hermes" / "webui"
    written(state / "sessions", "both", rows("of the file"))
    (state / "sessions/_deleted_webui_sessions.json").write_text('{"ids": ["gone"]}')
    with closing(sqlite3.connect(tmp_path / "hermes/state.db")) as database:
        database.executescript(
            """
            CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT, parent_session_id TEXT,
                started_at REAL, input_tokens INTEGER, title TEXT, cwd TEXT);
            CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
                tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL, active INTEGER,
                later TEXT);
            INSERT INTO sessions VALUES ('both', 'webui', 'm', NULL, 1.5, 1, NULL, NULL),
                ('sub', 'subagent', 'm', 'cli', 2.5, 1, NULL, NULL),
                ('cli', 'cli', 'm', NULL, 1.5, 7, 'In the terminal', '/srv'),
                ('gone', 'webui', 'm', NULL, 1.5, 1, NULL, NULL),
                ('none', 'cli', 'm', NULL, 1.5, 1, NULL, NULL);
            INSERT INTO messages VALUES
                (1, 'cli', 'user', '[Workspace::v1: /srv]' || char(10) || 'list', NULL, NULL, NULL, 3.5, 1,
                 'x'),
                (2, 'cli', 'assistant', '', NULL,
                 '[{"id": "c", "function": {"name": "ls", "arguments": "{}"}}]', NULL, 4.5, NULL, NULL),
                (3, 'cli', 'tool', 'a', 'c', NULL, 'ls', 5.5, 1, NULL),
                (4, 'cli', 'user', 'undone', NULL, NULL, NULL, 6.5, 0, NULL),
                (5, 'both', 'user', 'of the database', NULL, NULL, NULL, 1.5, 1, NULL),
                (6, 'gone', 'user', 'secret', NULL, NULL, NULL, 1.5, 1, NULL),
                (7, 'sub', 'user', 'task', NULL, NULL, NULL, 1.5, 1, NULL);
            """
        )
    return state


@contextmanager
def written_to(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database as the program does, which keeps its log."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        yield database


def late(database: sqlite3.Connection) -> None:
    """Add a row to a conversation."""
    database.execute("INSERT INTO messages (session_id, role, content) VALUES ('cli', 'user', 'late')")


def test_the_database_counts_where_there_is_no_file(with_database: Path) -> None:
    found = read(with_database)
    assert said(found["both"]) == ["of the file"]
    assert said(found["cli"]) == ["list", "ls {}", "-> a"]
    assert (found["cli"].title, found["cli"].directory, found["cli"].metrics.prompt_tokens) == (
        "In the terminal",
        "/srv",
        7,
    )
    assert skipped(found["cli"]) == {"the program had taken it out of the conversation": 1}
    assert skipped(found["gone"]) == {"the conversation was deleted": 1}
    assert found["sub"].parent_id == "cli"
    assert "none" not in found
    assert not records(found["cli"], Kept.UNKNOWN)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_database_with_changes_beside_it_is_read_whole_and_left_alone(
    with_database: Path, is_open: bool
) -> None:
    file = with_database.parent / "state.db"
    with written_to(file) as database:
        late(database)
        if not is_open:
            copy = with_database.parent.parent / "copy"
            shutil.copytree(with_database.parent, copy)
            (copy / "state.db-shm").unlink()
            with_database = copy / "webui"
        before = digest_of(with_database.parent)
        assert "late" in said(read(with_database)["cli"])
        assert digest_of(with_database.parent) == before


def test_a_damaged_database_does_not_hide_the_files(with_database: Path) -> None:
    file = with_database.parent / "state.db"
    for content in (b"", b"SQLite format 3\0" + b"\xff" * 5000, file.read_bytes()[:4096]):
        file.write_bytes(content)
        found = read(with_database)
        assert said(found["both"]) == ["of the file"]
        with pytest.raises(Unreadable):
            list(found["state.db"].nodes())


def test_a_hostile_database_does_no_harm_and_hides_no_file(
    with_database: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    victim = tmp_path / "secret_key"
    victim.write_text("a key of the server")
    file = with_database.parent / "state.db"
    for make, why in (
        (partial(hostile_databases.with_super_journal, victim=victim), "state.db-journal is beside it"),
        (hostile_databases.with_endless_view, "sessions is not a plain table"),
        (hostile_databases.with_misnamed_view, "malformed database schema|not a plain table"),
        (hostile_databases.with_large_values, "columns in it that are computed"),
        (hostile_databases.with_virtual_table, "messages is not a plain table"),
        (hostile_databases.with_repeated_pages, "more in it than a file of its size can hold"),
    ):
        with subtests.test(why):
            for each in with_database.parent.glob("state.db*"):
                each.unlink()
            make(file)
            found = read(with_database)
            assert said(found["both"]) == ["of the file"]
            with pytest.raises(Unreadable, match=f"state.db cannot be read: .*({why})"):
                list(found["state.db"].nodes())
            assert victim.exists()


def test_a_link_to_a_database_brings_what_is_beside_its_target(with_database: Path) -> None:
    file = with_database.parent / "state.db"
    target = with_database.parent.parent / "elsewhere.db"
    file.rename(target)
    file.symlink_to(target)
    with written_to(target) as database:
        late(database)
        assert "late" in said(read(with_database)["cli"])


def test_a_database_is_imported_while_the_program_writes_it(
    with_database: Path, subtests: pytest.Subtests
) -> None:
    def begin_log_anew(database: sqlite3.Connection) -> None:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        late(database)

    with written_to(with_database.parent / "state.db") as database:
        late(database)
        for what, times in ((late, 1000), (begin_log_anew, 1)):
            with subtests.test(what.__name__):
                left = iter(range(times))
                with processes.checked_by(lambda: what(database) if next(left, None) is not None else None):  # noqa: B023
                    found = read(with_database)
                assert "late" in said(found["cli"])
                assert "state.db" not in found


def test_what_a_database_made_of_its_reader_is_not_believed(
    with_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    session = 'sessions\\t"cli"\\t{"id": "cli", "source": "cli"}\\n'
    for printed in (
        "no tabs",
        "sessions\\t\\xff\\t{}",
        'sessions\\t"cli"\\tnot JSON',
        'sessions\\t"cli"\\t[1]',
        'sessions\\t"cli"\\t{"id": []}',
        'sessions\\t"cli"\\t" + "[" * 100000 + "',
        session + 'messages\\t"cli"\\tnot JSON',
        session + 'messages\\t"cli"\\t{"content": [1]}',
    ):
        with subtests.test(printed):
            reader = tmp_path / "reader.py"
            reader.write_text(
                "import sys\n\ndef read(*_):\n"
                f"    sys.stdout.buffer.write(('{printed}\\n').encode('latin-1'))\n"
                "    sys.stdout.buffer.flush()\n"
            )
            monkeypatch.setattr(sqlite_files, "READER", reader)
            found = read(with_database)
            assert said(found["both"]) == ["of the file"]
            broken = found.get("state.db") or found["cli"]
            with pytest.raises(Unreadable, match="malformed"):
                list(broken.nodes())


def test_a_journal_that_no_transaction_uses_is_passed_over(with_database: Path) -> None:
    (with_database.parent / "state.db-journal").write_bytes(bytes(512))
    assert said(read(with_database)["sub"]) == ["task"]


def test_what_sqlite_has_no_json_for_is_kept(with_database: Path) -> None:
    with closing(sqlite3.connect(with_database.parent / "state.db")) as database:
        database.execute(
            "INSERT INTO messages (session_id, role, content, later, timestamp) VALUES (?, ?, ?, ?, ?)",
            ("cli", "user", "tab\tand\nline", b"\xff\0", float("inf")),
        )
        database.commit()
    talk = read(with_database)["cli"]
    assert said(talk)[-1] == "tab\tand\nline"
    assert "{'base64': '/wA='}" in str([node.parts for node in talk.nodes()])


def test_a_file_that_changes_while_it_is_read_is_not_mixed(tmp_path: Path) -> None:
    written(tmp_path, "a", rows("1", "2"))
    talk = read(tmp_path)["a"]
    written(tmp_path, "a", rows("other"))
    with pytest.raises(Unreadable):
        list(talk.nodes())


def test_what_is_skipped_for_now_has_another_id_than_once_it_is_stored(tmp_path: Path) -> None:
    shutil.copytree(SESSIONS, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "running00001.json"
    ids = [
        {node.node_id for node in read(file, is_growing=is_growing)["running00001"].nodes() if node.parts}
        for is_growing in (True, False)
    ]
    left = {node.node_id for node in read(file, is_growing=True)["running00001"].nodes() if node.skipped}
    assert ids[0] < ids[1]
    assert not left & ids[1]


def test_the_source_is_never_changed() -> None:
    before = digest_of(STATE)
    for transcript in hermes.transcripts(STATE):
        list(transcript.nodes())
    assert digest_of(STATE) == before


def test_ids_stay_when_a_source_is_read_again() -> None:
    def ids() -> dict[str, list[str]]:
        return {name: [node.node_id for node in each.nodes()] for name, each in read().items()}

    assert ids() == ids()


def test_a_value_is_found_wherever_a_chunk_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    file = SESSIONS / "tools0000001.json"
    whole = list(scanning.found(file))
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(scanning, "CHUNK_BYTES", size)
        monkeypatch.setattr(scanning, "FIRST_BYTES", size)
        assert list(scanning.found(file)) == whole


def test_what_follows_damaged_bytes_is_found(tmp_path: Path) -> None:
    file = written(tmp_path, "a", rows("one", "two", "three", "four"), title="Talk")
    content = file.read_bytes()
    for fault in (b'"\x00', b"\xff", b'"', b"}", b"]", b"{", b"\\"):
        file.write_bytes(content.replace(b"two", fault))
        talk = read(tmp_path)["a"]
        assert [text for text in said(talk) if text in ("one", "three", "four")] == ["one", "three", "four"]


def check(transcript: Transcript, seed: int) -> list[Node]:
    nodes = list(transcript.nodes())
    assert len(nodes) == transcript.node_count, seed
    assert all(node.parts or node.skipped for node in nodes), seed
    assert len({node.node_id for node in nodes}) == len(nodes), seed
    assert 0 <= transcript.shared_count <= len(nodes), seed
    return nodes


def test_mutated_files_are_read_to_their_last_record(tmp_path: Path, mutation_seeds: Sequence[int]) -> None:
    documents = sorted(
        file for file in SESSIONS.iterdir() if file.is_file() and not file.name.startswith("_")
    )
    journals = sorted(SESSIONS.rglob("*.jsonl"))
    for seed in mutation_seeds:
        chance = random.Random(seed)
        file = documents[seed % len(documents)]
        folder = tmp_path / str(seed)
        shutil.copytree(SESSIONS / "_run_journal", folder / "_run_journal")
        shutil.copytree(SESSIONS / "_turn_journal", folder / "_turn_journal")
        for each in documents:
            if each.name.split(".")[0] == file.name.split(".")[0]:
                shutil.copy(each, folder)
        content = file.read_bytes()
        (folder / file.name).write_bytes(mutated_json(content, seed))
        journal = chance.choice(journals)
        (folder / journal.relative_to(SESSIONS)).write_bytes(mutated(journal.read_bytes(), seed + 1))
        found = list(hermes.transcripts(folder))
        assert found or not (folder / file.name).stat().st_size, seed
        assert len({each.source_id for each in found}) == len(found), seed
        nodes = [node for each in found for node in check(each, seed)]
        is_removed = any(node.skipped in (heads.REMOVED, heads.DELETED) for node in nodes)
        kept = [repr(node.parts) + node.skipped for node in nodes]
        for row in document_of(folder / file.name, file.name.split(".")[0]):
            text = row.get("content") if isinstance(row, dict) else None
            if isinstance(text, str) and len(text) > 9 and text.isprintable() and not text.startswith("<"):
                assert is_removed or any(repr(text)[1:-1] in each for each in kept), (seed, text)
        shutil.rmtree(folder)


def test_a_document_of_damaged_places_is_not_searched_from_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "LOOKED_AT_MIN_BYTES", 0)
    path = tmp_path / "s.json"
    path.write_bytes(b'{\n  "messages": [' + b"\n    {[" * 10_000)
    found = list(scanning.found(path))
    assert found[-1].end == path.stat().st_size
    assert len([each for each in found if each.damage]) <= scanning.LOOKED_AT_TIMES + 1
