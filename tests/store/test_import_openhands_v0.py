"""Importing OpenHands V0's file stores: each event as it was, each file accounted for."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, Event, Version
from conversations.store.importing import ImportRefused
from conversations.transcripts.sources import openhands_v0
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports.openhands_v0 import OpenHandsV0Importer
from sessions_app.imports.report import ConversationReport
from sessions_app.live import marks
from sessions_app.settings.user_settings import create_custom_secret

pytestmark = pytest.mark.one_engine

STORE = Path(__file__).parents[1] / "data" / "openhands-v0-store"
TEA = "7d1f3c0a52e84f6c9b1a0c4d5e6f7a01"
SPLIT = "7d1f3c0a52e84f6c9b1a0c4d5e6f7a02"
DAMAGED = "7d1f3c0a52e84f6c9b1a0c4d5e6f7a03"
EMPTY = "7d1f3c0a52e84f6c9b1a0c4d5e6f7a05"
OF_THE_CLI = "kettle-efeb15780f39c816"
NIGHT = "7d1f3c0a52e84f6c9b1a0c4d5e6f7a0f"
WORD = "search"
PICKLE = "a pickle is never opened: it may run anything"
BROKEN = "it is not a JSON object, or only the beginning of one"


def imported(user: User, path: Path = STORE, **options: object) -> dict[str, ConversationReport]:
    importer = OpenHandsV0Importer(user=user, **options)  # type: ignore[arg-type]
    return {each.sid: importer.take(each) for each in openhands_v0.found(path)}


def events_of(public_id: str) -> list[Event]:
    return list(Event.objects.filter(conversation__public_id=public_id).order_by("seq"))


def shown(public_id: str) -> list[tuple[int | None, str, str]]:
    """Return each event as its number, its wire's name, and its text."""
    return [(row.wire_id, row.type, row.text) for row in events_of(public_id)]


def of_bytes(directory: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        whole.update(str(file.relative_to(directory)).encode())
        whole.update(file.read_bytes() if file.is_file() else b"")
        whole.update(str(file.stat().st_mtime_ns).encode())
    return whole.hexdigest()


@pytest.mark.needs_engine
def test_a_conversation_is_stored_with_the_bytes_of_its_files(alice: User) -> None:
    imported(alice)
    files = [STORE / f"sessions/{TEA}/events/{number}.json" for number in (*range(6), 9, 10, 11)]
    assert [row.payload for row in events_of(TEA)] == [file.read_text() for file in files]
    assert shown(TEA) == [
        (0, "message", "Write a script that boils water."),
        (1, "system", "You are a helpful agent."),
        (2, "recall", "Retrieving content for: Write a script that boils water."),
        (3, "recall", "Added workspace context"),
        (4, "run", 'echo "café \N{TEACUP WITHOUT HANDLE}"'),
        (5, "run", "café \N{TEACUP WITHOUT HANDLE}\n"),
        (9, "hologram", ""),
        (10, "message", "Done: it boils."),
        (11, "agent_state_changed", "awaiting_user_input"),
    ]
    assert {row.dialect for row in events_of(TEA)} == {"v0"}


def test_what_the_metadata_say_becomes_the_columns(alice: User) -> None:
    imported(alice, labels=("old",))
    talk = Conversation.objects.get(public_id=TEA)
    assert (talk.version, talk.title, talk.llm_model) == (Version.V0, "Kettle script", "gpt-5-mini")
    assert (talk.repository, talk.branch, talk.provider) == ("ana/kettle", "main", "github")
    assert (talk.trigger, talk.pr_number) == ("gui", [4, 7])
    assert talk.created_at.isoformat() == "2025-11-20T08:49:31.644761+00:00"
    assert talk.updated_at.isoformat() == "2025-11-20T08:49:42.000011+00:00"
    assert talk.tags == {"source": "openhands-v0", "source_id": TEA, "old": ""}
    # An event knows of more than the metadata, which the program wrote before.
    assert (talk.accumulated_cost, talk.prompt_tokens, talk.completion_tokens) == (0.0006, 1900, 200)
    assert talk.total_tokens == 2100


def test_nothing_asks_the_agent_and_nothing_is_news(alice: User) -> None:
    imported(alice)
    talk = Conversation.objects.get(public_id=TEA)
    assert talk.asked_through == -1
    assert marks.seen_through(alice.pk, talk.ref) == talk.next_seq - 1


def test_times_without_a_zone_are_those_of_the_computer_that_wrote_them(alice: User) -> None:
    imported(alice, zone=ZoneInfo("America/Lima"))
    first = events_of(OF_THE_CLI)[0]
    assert first.timestamp.isoformat() == "2025-11-20T13:49:51+00:00"
    assert '"timestamp": "2025-11-20T08:49:51.000000"' in first.payload
    assert Conversation.objects.get(public_id=OF_THE_CLI).created_at == first.timestamp


def written(store: Path, *times: object, around: bytes = b"") -> Path:
    """Write a conversation whose events have these times, and return the store."""
    folder = store / "sessions" / NIGHT / "events"
    folder.mkdir(parents=True, exist_ok=True)
    for number, at in enumerate(times):
        event = {
            "id": number,
            "timestamp": at,
            "source": "user",
            "action": "message",
            "args": {"content": "m"},
        }
        (folder / f"{number}.json").write_bytes(around + json.dumps(event).encode() + around)
    (folder.parent / "metadata.json").write_text(json.dumps({"created_at": "2025-10-25T23:50:00Z"}))
    return store


def test_the_hour_that_a_clock_has_twice_does_not_go_backwards(alice: User, tmp_path: Path) -> None:
    times = ("2025-10-26T02:30:00", "2025-10-26T02:59:59", "2025-10-26T02:00:05", "2025-10-26T02:30:00")
    spring = ("2026-03-29T01:59:59", "2026-03-29T02:30:00", "2026-03-29T03:00:00")
    imported(alice, written(tmp_path, *times, *spring), zone=ZoneInfo("Europe/Berlin"))
    assert [f"{event.timestamp:%m-%d %H:%M:%S}" for event in events_of(NIGHT)] == [
        "10-26 00:30:00",
        "10-26 00:59:59",
        "10-26 01:00:05",
        "10-26 01:30:00",
        "03-29 00:59:59",
        "03-29 01:30:00",
        "03-29 01:00:00",
    ]


def test_an_event_without_a_time_has_that_of_the_one_before_it(alice: User, tmp_path: Path) -> None:
    imported(alice, written(tmp_path, None, "2025-10-26T08:00:00", "soon", 5, "2025-10-26T09:00:00"))
    assert [f"{event.timestamp:%d %H:%M}" for event in events_of(NIGHT)] == [
        "25 23:50",
        "26 08:00",
        "26 08:00",
        "26 08:00",
        "26 09:00",
    ]


def test_padding_around_an_event_is_no_part_of_it(alice: User, tmp_path: Path) -> None:
    for number, around in enumerate((b"\0" * 9, "\ufeff".encode(), b"\r\n")):
        store = written(tmp_path / str(number), "2025-10-26T08:00:00", around=around)
        report = imported(alice, store)[NIGHT]
        assert (report.stored + report.events_already_here, report.skipped) == (1 + bool(number), {}), around


def test_two_directories_of_one_conversation_are_one(alice: User) -> None:
    report = imported(alice)[SPLIT]
    assert shown(SPLIT) == [
        (0, "message", "Count the beans."),
        (1, "message", "Eleven."),
        (2, "message", "And the peas?"),
        (2, "message", "Now the lentils."),
    ]
    talk = Conversation.objects.get(public_id=SPLIT)
    assert (talk.title, talk.trigger, talk.provider) == (None, "resolver_of_tomorrow", "forge")
    assert talk.tags["user_id"] == "ana"
    assert (report.found, report.stored) == (5, 4)
    assert report.skipped == {"the same event is in another directory as well": 1}
    assert report.noted == {
        "metadata.json: more text follows after its end, and is left out": 1,
        'metadata.json: it has members that are not known, and left out: {"weather": "fine"}': 1,
        "another directory has another event with its id": 1,
        "agent_state.pkl: " + PICKLE: 1,
        "exp_config.json: it is not read": 1,
    }


def test_files_that_cannot_be_read_are_skipped_with_the_reason(alice: User) -> None:
    report = imported(alice)[DAMAGED]
    assert shown(DAMAGED) == [
        (0, "message", "Begin."),
        (3, "message", "short"),
        (18, "message", "Another id."),
        (9, "message", "No id, no time."),
        (11, "message", "End."),
    ]
    assert (report.found, report.stored) == (16, 5)
    assert report.skipped == {
        "it is empty": 1,
        "it is not UTF-8": 1,
        BROKEN: 3,  # half of one, a list, and a number that is no JSON
        "it is not an event: it names no type, or two": 2,
        "its name is not the name of an event file": 4,
    }
    assert report.noted == {
        "more text follows after its end, and is left out": 1,
        "the event in it has another id": 1,
        f"metadata.json: {BROKEN}": 1,
    }


def test_what_the_metadata_do_not_say_is_derived(alice: User) -> None:
    imported(alice)
    damaged = Conversation.objects.get(public_id=DAMAGED)
    assert (damaged.title, damaged.tags["user_id"]) == (None, "17")
    assert damaged.created_at == events_of(DAMAGED)[0].timestamp
    assert shown(OF_THE_CLI) == [(0, "message", "From the command line."), (1, "message", "Hello.")]


def test_a_conversation_without_events_is_not_stored(alice: User) -> None:
    report = imported(alice)[EMPTY]
    assert (report.conversation_id, report.found) == (None, 0)
    assert report.noted == {"there is no event to store in it": 1}
    assert not Conversation.objects.filter(title="Never begun").exists()


def test_an_id_that_no_conversation_can_have_here_becomes_another(alice: User, bob: User) -> None:
    report = imported(alice)[WORD]
    assert report.conversation_id == OpenHandsV0Importer(user=alice).id_of(WORD)
    assert UUID(report.conversation_id).hex == report.conversation_id
    assert OpenHandsV0Importer(user=bob).id_of(WORD) != report.conversation_id


def test_conversations_are_those_with_metadata_or_events() -> None:
    sids = [each.sid for each in openhands_v0.found(STORE)]
    assert sids == [TEA, SPLIT, DAMAGED, EMPTY, OF_THE_CLI, WORD]


@pytest.mark.parametrize(
    ("part", "sids"),
    [
        ("sessions", [TEA, SPLIT, EMPTY, OF_THE_CLI, WORD]),
        ("users", [DAMAGED, SPLIT]),
        ("users/17", [DAMAGED]),
        ("users/17/conversations", [DAMAGED]),
        (f"users/17/conversations/{DAMAGED}", [DAMAGED]),
        (f"sessions/{TEA}", [TEA]),
    ],
)
def test_a_part_of_a_store_will_do(part: str, sids: list[str]) -> None:
    assert sorted(each.sid for each in openhands_v0.found(STORE / part)) == sorted(sids)
    assert openhands_v0.is_source(STORE / part)


def test_something_else_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("{}")
    assert not openhands_v0.is_source(tmp_path)
    assert not openhands_v0.is_source(tmp_path / "metadata.json")
    assert not openhands_v0.is_source(STORE.parent / "openhands-v1")
    with pytest.raises(Unreadable):
        openhands_v0.found(tmp_path / "nowhere")


@pytest.mark.no_second_try
def test_an_import_that_is_repeated_adds_nothing(alice: User) -> None:
    first = imported(alice)
    assert sum(each.events_added for each in first.values()) == 21
    before = list(Event.objects.values_list("conversation", "seq", "event_id", "payload"))
    again = imported(alice)
    assert sum(each.events_added for each in again.values()) == 0
    assert [each.stored for each in again.values()] == [each.stored for each in first.values()]
    assert list(Event.objects.values_list("conversation", "seq", "event_id", "payload")) == before


@pytest.mark.no_second_try
def test_a_conversation_that_has_grown_brings_only_what_is_new(alice: User, tmp_path: Path) -> None:
    directory = tmp_path / TEA
    shutil.copytree(STORE / f"sessions/{TEA}", directory)
    late = [directory / f"events/{number}.json" for number in (10, 11)]
    contents = [file.read_bytes() for file in late]
    for file in late:
        file.unlink()
    assert imported(alice, tmp_path)[TEA].events_added == 7
    for file, content in zip(late, contents, strict=True):
        file.write_bytes(content)
    report = imported(alice, tmp_path)[TEA]
    assert (report.events_added, report.events_already_here) == (2, 7)
    assert shown(TEA)[-1] == (11, "agent_state_changed", "awaiting_user_input")


def test_the_source_is_never_changed(alice: User) -> None:
    before = of_bytes(STORE)
    imported(alice)
    assert of_bytes(STORE) == before


def test_pickles_are_not_opened(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    really = Path.open

    def watch(self: Path, *args: object, **options: object) -> object:
        opened.append(self.name)
        return really(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", watch)
    report = imported(alice)[TEA]
    assert "0.json" in opened
    assert not [name for name in opened if name.endswith(".pkl")]
    assert report.noted[f"conversation_stats.pkl: {PICKLE}"] == 1
    assert report.noted["event_cache: it repeats events, and is not read"] == 1


def test_a_dry_run_stores_nothing_and_says_what_it_would(alice: User) -> None:
    dry = imported(alice, is_dry=True)
    assert not Conversation.objects.exists()
    counts = [(each.stored, each.events_added) for each in dry.values()]
    assert counts == [(each.stored, each.events_added) for each in imported(alice).values()]


def test_a_link_is_no_event(alice: User, tmp_path: Path) -> None:
    (tmp_path / "talk/events").mkdir(parents=True)
    shutil.copy(STORE / f"sessions/{TEA}/events/0.json", tmp_path / "talk/events/0.json")
    (tmp_path / "talk/events/1.json").symlink_to(STORE / f"sessions/{TEA}/events/1.json")
    (tmp_path / "other").symlink_to(STORE / f"sessions/{TEA}")
    reports = imported(alice, tmp_path)
    assert list(reports) == ["talk"]
    assert reports["talk"].skipped == {"it is not a regular file": 1}


def test_registered_secrets_are_masked(alice: User, tmp_path: Path) -> None:
    create_custom_secret(alice.pk, "TOKEN", "hunter2-hunter2", description="")
    said = {"id": 0, "source": "user", "message": "use hunter2-hunter2", "action": "message"}
    (tmp_path / "talk/events").mkdir(parents=True)
    (tmp_path / "talk/events/0.json").write_text(json.dumps({**said, "args": {"content": "hunter2-hunter2"}}))
    imported(alice, tmp_path)
    [row] = events_of("talk")
    assert "hunter2-hunter2" not in row.payload + row.text


def test_another_users_conversation_is_refused(alice: User, bob: User) -> None:
    imported(alice)
    [tea] = openhands_v0.found(STORE / f"sessions/{TEA}")
    with pytest.raises(ImportRefused, match="belongs to another user"):
        OpenHandsV0Importer(user=bob).take(tea)
