"""Importing what V1 agent servers keep in directories: whole, once, and without a trace in the source."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from conversations.events import NewEvent
from conversations.log import writes
from conversations.models import Conversation, Event, Version
from conversations.store import creation, deletion, importing
from convserver import cli
from sessions_app import astore
from sessions_app.identity.authentication import LOCAL_USERNAME
from sessions_app.models import AgentLoop, AgentSetup
from sessions_app.settings.user_settings import create_custom_secret
from tests.support.data import events
from tests.support.data.threads import in_threads
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import manager, stage, until_said
from tests.support.wires import app_face
from tests.support.wires.v1 import AGENT, HEX, ID, said

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

SAMPLE = Path(__file__).parents[2] / "data/openhands-v1/conversation"
SAMPLE_ID = "3c294d95-9ff6-4d2d-9c53-0a5849f2c4a0"
STATE = {"id": ID, "execution_status": "idle", "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"}}
EXAMPLE = app_face.event()
META = {"id": HEX, "title": "A talk", "tags": {"team": "red"}, "created_at": "2025-11-28T09:00:00Z"}


def event_id(number: int) -> str:
    return str(UUID(int=number + 1))


def message(number: int, **members: Any) -> dict[str, Any]:
    return app_face.reported(f"message {number}", event_id=event_id(number), **members)


def call(number: int, tool_call_id: str) -> dict[str, Any]:
    return {
        "kind": "ActionEvent",
        "id": event_id(number),
        "source": "agent",
        "tool_name": "terminal",
        "tool_call_id": tool_call_id,
        "action": {"kind": "TerminalAction", "command": "ls"},
    }


def observation(number: int, tool_call_id: str, **seen: Any) -> dict[str, Any]:
    return {
        "kind": "ObservationEvent",
        "id": event_id(number),
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": tool_call_id,
        "action_id": event_id(number - 1),
        "observation": {"kind": "TerminalObservation", "content": [], **seen},
    }


class Kept:
    """A conversation's directory under a root."""

    def __init__(self, root: Path, name: str = HEX) -> None:
        self.root = root
        self.path = root / name
        (self.path / "events").mkdir(parents=True)
        self.write("base_state.json", STATE)
        self.write("meta.json", META)

    def write(self, name: str, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.path / name).write_text(text)

    def event(self, index: int, content: Any, *, named: str | None = None) -> Path:
        name = named or (content["id"] if isinstance(content, dict) and "id" in content else event_id(index))
        self.write(f"events/event-{index:05d}-{name}.json", content)
        return self.path / f"events/event-{index:05d}-{name}.json"


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A conversation with three messages."""
    found = Kept(tmp_path / "conversations")
    for number in range(3):
        found.event(number, message(number))
    return found


def imported(path: Path | Kept, *options: str) -> str:
    printed = StringIO()
    where = path.root if isinstance(path, Kept) else path
    call_command("import_openhands_v1", str(where), *options, stdout=printed)
    return printed.getvalue()


def refused(path: Path | Kept, *options: str) -> str:
    printed = StringIO()
    where = path.root if isinstance(path, Kept) else path
    with pytest.raises(CommandError):
        call_command("import_openhands_v1", str(where), *options, stdout=printed)
    return printed.getvalue()


def log(conversation_id: str = HEX) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in payloads(conversation_id)]


def payloads(conversation_id: str = HEX) -> list[str]:
    rows = Event.objects.filter(conversation__public_id=conversation_id).order_by("seq")
    return list(rows.values_list("payload", flat=True))


def ids() -> list[str]:
    return [event["id"] for event in log()]


def everything() -> list[Any]:
    """Return all that an import could change."""
    rows = (Conversation.objects, Event.objects, AgentLoop.objects, AgentSetup.objects)
    return [list(each.order_by("pk").values()) for each in rows]


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(root.rglob("*")))
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in files
    }


async def test_the_recorded_conversation_is_shown_event_for_event(rest: httpx.AsyncClient) -> None:
    assert "imported 39 events" in await astore.call(imported, SAMPLE, "--force")
    files = sorted(SAMPLE.glob("*/events/event-*.json"))
    answer = await rest.get(f"{AGENT}/{SAMPLE_ID}/events/search", params={"limit": 100})
    *shown, state, request = answer.json()["items"]
    assert shown == [json.loads(file.read_text()) for file in files]
    names = ["members of base_state.json", "members of meta.json"]
    assert [each["value"]["name"] for each in (state, request)] == names


async def test_the_recorded_conversation_is_described_as_it_was(rest: httpx.AsyncClient) -> None:
    await astore.call(imported, SAMPLE, "--force")
    found = (await rest.get(f"{AGENT}/{SAMPLE_ID}")).json()
    names = ("title", "execution_status", "created_at", "updated_at", "leaf_event_id", "confirmation_policy")
    assert [found[name] for name in names] == [
        "Renamed by the driver",
        "finished",
        "2026-11-20T09:26:04.276649Z",
        found["updated_at"],
        "f197cbee-6f94-46e7-b9da-b288759e2ee7",
        {"kind": "NeverConfirm"},
    ]
    assert found["metrics"]["accumulated_token_usage"]["prompt_tokens"] == 27427 + 3909
    assert found["agent"]["llm"]["api_key"] == "**********"
    assert "ciphertext" not in json.dumps(found)


@pytest.mark.needs_engine
def test_every_payload_is_the_text_of_its_file(kept: Kept, alice: User) -> None:
    spaced = json.dumps(message(3), indent=2) + "\n"
    kept.event(3, spaced)
    imported(kept)
    assert payloads()[3] == spaced


def test_events_stand_by_index_and_not_by_time(kept: Kept, alice: User) -> None:
    kept.event(3, message(3, timestamp="2001-01-01T00:00:00"))
    kept.event(100_000, message(5))
    kept.event(99_999, message(4))
    imported(kept)
    assert ids() == [event_id(number) for number in range(6)]


def test_gaps_are_kept_in_a_column(kept: Kept, alice: User) -> None:
    kept.event(100_000, message(3))
    imported(kept)
    assert list(Event.objects.order_by("seq").values_list("wire_id", flat=True)) == [0, 1, 2, 100_000]


def test_two_files_of_one_index_are_two_events(kept: Kept, alice: User) -> None:
    kept.event(2, message(3))
    imported(kept)
    assert ids() == [event_id(number) for number in range(4)]


def test_of_one_event_id_the_first_file_stays(kept: Kept, alice: User) -> None:
    kept.event(3, message(0, sender="somebody"))
    assert "skipped event-00003-" in imported(kept)
    assert "sender" not in log()[0]


def test_the_id_in_the_event_wins_over_the_name_of_its_file(kept: Kept, alice: User) -> None:
    kept.event(3, message(3), named="feedfeed")
    imported(kept)
    assert ids()[3] == event_id(3)


def test_an_event_without_an_id_has_that_of_its_file(kept: Kept, alice: User) -> None:
    kept.event(3, {"kind": "PauseEvent"}, named="feedfeed")
    imported(kept)
    assert Event.objects.get(seq=3).event_id == "feedfeed"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"kind": "Messa', "character"),
        (b"[]", "expected"),
        (b'{"kind": "MessageEvent"} {}', "more text"),
        (b'{"id": "x"}', "has no kind"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"kind": "ConversationStateUpdateEvent", "key": "full_state"}', "whole state"),
        (b"[" * 100_000, "expected"),
        (b'{"kind": "K", "x": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_costs_no_other(
    kept: Kept, alice: User, content: bytes, reason: str
) -> None:
    kept.event(1, message(1)).write_bytes(content)
    printed = imported(kept)
    assert f"skipped event-00001-{event_id(1)}.json: " in printed
    assert reason in printed
    assert ids() == [event_id(0), event_id(2)]


def test_what_is_no_plain_file_is_not_followed(kept: Kept, alice: User, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text(json.dumps(message(3)))
    (kept.path / "events" / "event-00003-feedfeed.json").symlink_to(tmp_path / "elsewhere.json")
    os.mkfifo(kept.path / "events" / "event-00004-feedfeed.json")
    (kept.path / "events" / "event-00005-feedfeed.json").mkdir()
    assert imported(kept).count("it is not a regular file") == 3
    assert len(ids()) == 3


def test_locks_are_passed_over_and_strange_names_are_told(kept: Kept, alice: User) -> None:
    kept.write("events/.eventlog.lock", "")
    kept.write("events/notes\n.json", "")
    printed = imported(kept)
    assert r"skipped 'notes\n.json': its name is not the name of an event file" in printed
    assert "eventlog" not in printed


def test_an_unknown_kind_is_stored_as_it_is(kept: Kept, alice: User) -> None:
    kept.event(3, {"kind": "KindOfTomorrow", "id": event_id(3), "action": "run", "much": {"more": 1}})
    imported(kept)
    assert log()[3]["much"] == {"more": 1}


def test_a_failed_start_is_imported_empty_or_passed_over(kept: Kept, alice: User) -> None:
    shutil.rmtree(kept.path / "events")
    (kept.path / "meta.json").unlink()
    assert "skipped, it has no events" in imported(kept, "--skip-empty")
    assert not Conversation.objects.exists()
    imported(kept)
    assert Conversation.objects.get().next_seq == 0


def test_without_meta_the_first_event_says_when_it_began(kept: Kept, alice: User) -> None:
    (kept.path / "meta.json").unlink()
    imported(kept)
    row = Conversation.objects.get()
    assert (row.title, row.created_at) == (None, datetime(2025, 11, 28, 10, tzinfo=UTC))


def test_without_any_facts_the_directory_is_named_by_its_id_and_dated_by_its_time(
    tmp_path: Path, alice: User
) -> None:
    kept = Kept(tmp_path / "conversations")
    for name in ("meta.json", "base_state.json"):
        (kept.path / name).unlink()
    kept.event(0, {"kind": "PauseEvent"}, named="feedfeed")
    os.utime(kept.path, (1_700_000_000, 1_700_000_000))
    imported(kept)
    row = Conversation.objects.get()
    assert (row.public_id, row.created_at) == (HEX, datetime.fromtimestamp(1_700_000_000, UTC))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x":' + "[" * 100_000, '{"a":' * 200 + "1" + "}" * 200])
def test_facts_that_cannot_be_read_cost_no_event(kept: Kept, alice: User, content: str) -> None:
    kept.write("meta.json", content)
    kept.write("base_state.json", content)
    printed = imported(kept)
    assert "skipped meta.json: " in printed
    assert "skipped base_state.json: " in printed
    assert len(ids()) == 3


def test_facts_of_the_wrong_shape_cost_no_event(kept: Kept, alice: User) -> None:
    names = ("agent", "workspace", "confirmation_policy", "stats", "tags", "title", "max_iterations")
    kept.write("meta.json", dict.fromkeys((*names, "secrets", "metrics", "created_at"), 10**30))
    kept.write(
        "base_state.json", '{"id": 5, "title": "a\\u0000b\\ud800", "stats": {"usage_to_metrics": [NaN]}}'
    )
    imported(kept)
    assert (Conversation.objects.get().title, len(ids())) == ("a\ufffdb\ufffd", 3)


def test_naive_times_are_of_the_given_zone_in_columns_alone(kept: Kept, alice: User) -> None:
    imported(kept, "--timezone", "Asia/Tokyo")
    assert Event.objects.get(seq=0).timestamp == datetime(2025, 11, 28, 1, tzinfo=UTC)
    assert log()[0]["timestamp"] == "2025-11-28T10:00:00.000000"


def test_a_conversation_is_as_old_as_its_last_event(kept: Kept, alice: User) -> None:
    imported(kept, "--timezone", "Asia/Tokyo")
    row = Conversation.objects.get()
    then = datetime(2025, 11, 28, 1, tzinfo=UTC)
    assert (row.created_at, row.updated_at, row.last_message_at) == (
        datetime(2025, 11, 28, 9, tzinfo=UTC),
        then,
        then,
    )


def test_a_conversation_that_went_on_here_is_not_made_older(kept: Kept, alice: User) -> None:
    imported(kept)
    writes.append(Conversation.objects.get().ref, [app_face.event()])
    kept.event(3, message(3))
    imported(kept)
    assert timezone.now() - Conversation.objects.get().updated_at < timedelta(hours=1)


def test_a_v0_client_answers_what_it_was_shown_whatever_the_file_was_called(kept: Kept, alice: User) -> None:
    kept.event(100, message(3))
    (kept.path / f"events/event-00000-{event_id(0)}.json").unlink()
    imported(kept)  # the files 1, 2 and 100 are the events 0, 1 and 2
    answer = events.event(raw=events.payload(cause=1))
    (appended,) = writes.append(Conversation.objects.get().ref, [answer])
    assert Event.objects.get(seq=appended.seq).cause_seq == 1


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_two_imports_at_once_store_every_event_once(
    kept: Kept, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing, together = importing.standing, Barrier(2)

    def standing_in_both(*arguments: Any) -> Any:
        found = standing(*arguments)
        if found is None:
            together.wait(WAIT_S)
        return found

    monkeypatch.setattr(importing, "standing", standing_in_both)
    printed: list[str] = []
    in_threads(2, lambda _: printed.append(imported(kept)))
    assert ids() == [event_id(number) for number in range(3)]


@pytest.mark.parametrize("status", ["finished", "running", "paused", "stuck"])
@pytest.mark.needs_engine
async def test_an_imported_conversation_can_be_continued(
    kept: Kept, rest: httpx.AsyncClient, manager: object, status: str
) -> None:
    kept.write("base_state.json", STATE | {"execution_status": status})
    await astore.call(imported, kept)
    response = await rest.post(f"{AGENT}/{ID}/events", json=said("hello", run=True))
    assert response.status_code == 200, response.text
    await until_said(await astore.call(lambda: Conversation.objects.get().ref), "answer to hello")


def test_an_unknown_zone_is_refused(kept: Kept, alice: User) -> None:
    with pytest.raises(CommandError, match="not a time zone"):
        imported(kept, "--timezone", "Mars/Olympus")


@pytest.mark.parametrize("status", ["running", "waiting_for_confirmation"])
def test_a_run_that_was_cut_off_ends_in_an_error(kept: Kept, alice: User, status: str) -> None:
    kept.write("base_state.json", STATE | {"execution_status": status})
    for number, content in enumerate(
        [call(3, "done"), observation(4, "done"), call(5, "open"), call(6, "open too")], start=3
    ):
        kept.event(number, content)
    imported(kept)
    assert [(each["kind"], each.get("tool_call_id"), each.get("value")) for each in log()[7:]] == [
        ("AgentErrorEvent", "open", None),
        ("AgentErrorEvent", "open too", None),
        ("ConversationStateUpdateEvent", None, "error"),
    ]
    assert AgentLoop.objects.get().execution_status == "error"


def test_without_a_state_the_log_says_that_a_run_was_cut_off(kept: Kept, alice: User) -> None:
    (kept.path / "base_state.json").unlink()
    told = {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": "running"}
    kept.event(3, told | {"id": event_id(3)})
    imported(kept)
    assert log()[-1]["value"] == "error"


def test_a_command_that_a_file_leaves_out_is_null(kept: Kept, alice: User) -> None:
    kept.event(3, observation(3, "one", exit_code=0))
    kept.event(4, observation(4, "two", command="ls"))
    imported(kept)
    assert [each["observation"]["command"] for each in log()[3:]] == [None, "ls"]


def test_what_a_server_is_at_work_on_is_refused_unless_forced(kept: Kept, alice: User) -> None:
    kept.write("owner_lease.json", {"expires_at": time.time() + 60})
    assert "refused" in refused(kept)
    assert not Conversation.objects.exists()
    assert "imported 3 events" in imported(kept, "--force")


@pytest.mark.parametrize("lease", ["", '{"expires_at": "soon"}', '{"expires_at": 5}', '{"expires_at": NaN}'])
def test_a_lease_that_is_over_holds_nothing(kept: Kept, alice: User, lease: str) -> None:
    kept.write("owner_lease.json", lease)
    assert "imported 3 events" in imported(kept)


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_a_second_import_changes_nothing(kept: Kept, alice: User) -> None:
    kept.event(1, message(1)).write_text("")
    kept.event(4, {"kind": "KindOfTomorrow", "id": event_id(4)})
    kept.event(100_000, call(5, "open"))
    (kept.path / "meta.json").unlink()
    kept.write("base_state.json", STATE | {"execution_status": "running"})
    assert "imported 6 events, 0 already there, 1 skipped." in imported(kept)
    before = everything()
    assert "imported 0 events, 6 already there, 1 skipped." in imported(kept)
    assert everything() == before


def test_what_was_added_to_the_source_is_added_here(kept: Kept, alice: User) -> None:
    imported(kept)
    kept.event(3, message(3))
    assert "imported 1 events, 3 already there" in imported(kept)
    assert ids() == [event_id(number) for number in range(4)]


def test_under_one_id_the_bytes_that_were_imported_first_stay(kept: Kept, alice: User) -> None:
    imported(kept)
    kept.event(0, message(0, sender="somebody"))
    assert "imported 0 events, 3 already there" in imported(kept)
    assert "sender" not in log()[0]


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_an_interrupted_import_goes_on_where_it_stopped(
    kept: Kept, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "PAGE_MAX_EVENTS", 2)
    append = writes.append

    def append_once(*arguments: Any, **options: Any) -> Any:
        if Event.objects.exists():
            raise KeyboardInterrupt
        return append(*arguments, **options)

    with monkeypatch.context() as cut:
        cut.setattr(writes, "append", append_once)
        with pytest.raises(KeyboardInterrupt):
            imported(kept)
    assert len(ids()) == 2

    assert "imported 1 events, 2 already there" in imported(kept)
    assert ids() == [event_id(number) for number in range(3)]


def test_no_more_than_a_batch_of_events_is_held(
    alice: User, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "PAGE_MAX_EVENTS", 2)
    behind: list[int] = []

    def read() -> Iterable[NewEvent]:
        for number in range(7):
            behind.append(number - Event.objects.count())
            yield NewEvent(event_id=str(number), payload='{"kind":"K"}', reading=EXAMPLE.reading)

    importing.import_conversation(alice, read(), conversation_id=HEX, version=Version.V1)
    assert max(behind) == 1


def test_long_events_fill_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PAGE_MAX_BYTES", 10)
    assert [len(batch) for batch in importing.batches([EXAMPLE, EXAMPLE])] == [1, 1]


def test_an_event_that_cannot_be_stored_costs_no_other(kept: Kept, alice: User) -> None:
    create_custom_secret(alice.pk, "TOKEN", "the-secret-value", description="")
    kept.event(1, {"kind": "K", "id": event_id(1), "x": ["the-secret-value"] * 50_001})
    assert f"skipped event {event_id(1)}: " in imported(kept)
    assert ids() == [event_id(0), event_id(2)]


@pytest.mark.needs_engine
def test_secrets_of_the_owner_are_hidden(kept: Kept, alice: User) -> None:
    create_custom_secret(alice.pk, "TOKEN", "the-secret-value", description="")
    kept.event(3, message(3, sender="the-secret-value"))
    imported(kept)
    assert log()[3]["sender"] == "<secret_hidden>"


def test_an_import_asks_no_agent_anything(kept: Kept, alice: User) -> None:
    imported(kept)
    assert not Conversation.objects.unanswered().exists()
    assert not Event.objects.inputs().exists()


def test_the_agent_is_set_up_as_it_was_without_a_secret_value(kept: Kept, alice: User) -> None:
    agent = {"kind": "Agent", "llm": {"model": "m", "api_key": "gAAAA"}}
    kept.write("base_state.json", STATE | {"agent": agent, "max_iterations": 7})
    kept.write("meta.json", META | {"secrets": {"KEY": {"kind": "StaticSecret", "value": "gAAAA"}}})
    imported(kept)
    setup = AgentSetup.objects.get()
    assert (setup.max_iterations, setup.workspace["working_dir"], list(setup.shown_secrets)) == (
        7,
        "/w",
        ["KEY"],
    )
    texts = [setup.sealed_agent.open(), setup.sealed_secrets.open(), json.dumps(setup.shown_agent)]
    assert not any("gAAAA" in text for text in (*texts, json.dumps(setup.shown_secrets)))
    assert Conversation.objects.get().tags == {"team": "red"}


def test_a_loop_that_has_run_here_says_itself_what_the_agent_does(kept: Kept, alice: User) -> None:
    imported(kept)
    AgentLoop.objects.update(epoch=1, execution_status="finished")
    kept.event(3, message(3))
    imported(kept)
    assert AgentLoop.objects.get().execution_status == "finished"


@pytest.mark.parametrize("change", ["stranger", "deleted", "version"])
def test_what_does_not_go_together_is_refused_by_name(
    kept: Kept, alice: User, bob: User, change: str
) -> None:
    owner = bob if change == "stranger" else alice
    version = Version.V0 if change == "version" else Version.V1
    there = creation.create(owner, conversation_id=HEX, version=version)
    if change == "deleted":
        deletion.soft_delete(there)
    other = Kept(kept.root, UUID(int=7).hex)
    other.write("base_state.json", STATE | {"id": str(UUID(int=7))})
    printed = refused(kept)
    assert f"{HEX}: refused. The conversation {HEX} " in printed
    assert "refused: 1; imported 0 events" in printed
    assert Conversation.objects.with_public_ids([UUID(int=7).hex]).exists()
    assert not ids()


def test_a_dry_run_writes_nothing_and_says_the_same(kept: Kept, alice: User) -> None:
    kept.write("base_state.json", STATE | {"execution_status": "running"})
    before = everything()
    foreseen = imported(kept, "--dry-run")
    assert everything() == before
    assert foreseen.replace("would import", "imported") == imported(kept)


def test_a_dry_run_makes_no_user(kept: Kept, database: None) -> None:
    assert "would import 3 events" in imported(kept, "--dry-run")
    assert not User.objects.filter(username=LOCAL_USERNAME).exists()


def test_the_source_is_not_touched(kept: Kept, alice: User) -> None:
    before = tree(kept.root)
    imported(kept)
    assert tree(kept.root) == before


@pytest.mark.usefixtures("accounts")
def test_in_accounts_mode_an_owner_is_named(kept: Kept, bob: User) -> None:
    assert refused(kept) == ""
    imported(kept, "--owner", "bob")
    assert Conversation.objects.get().owner_id == bob.pk


def test_an_unknown_owner_is_refused(kept: Kept, alice: User) -> None:
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        imported(kept, "--owner", "nobody")


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_path_without_conversations_is_refused(tmp_path: Path, alice: User, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CommandError, match=r"cannot be read|no conversation"):
        imported(tmp_path / name)


NOWHERE = "n" * 300
"""A link to it cannot be followed, not even by root: no file system has so long a name."""


@pytest.mark.parametrize("facts", [(), ("base_state.json",)])
def test_a_directory_that_cannot_be_read_is_refused_by_name_and_costs_no_other(
    kept: Kept, alice: User, facts: tuple[str, ...]
) -> None:
    closed = Kept(kept.root, UUID(int=7).hex)
    for name in ("base_state.json", "meta.json"):
        (closed.path / name).unlink()
    (closed.path / "events").rmdir()
    for name in ("events", *facts):
        (closed.path / name).symlink_to(NOWHERE)
    printed = refused(kept)
    assert f"{UUID(int=7).hex}: refused. events cannot be read: " in printed
    assert "Conversations: 2, refused: 1; imported 3 events" in printed
    assert len(ids()) == 3


def test_a_link_that_cannot_be_followed_is_refused_by_its_end_and_costs_no_other(
    kept: Kept, alice: User
) -> None:
    (kept.root / "elsewhere").symlink_to(NOWHERE)
    printed = refused(kept)
    assert f"{NOWHERE}: refused. events cannot be read: " in printed
    assert len(ids()) == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_directory_that_is_closed_is_refused_by_name_and_costs_no_other(kept: Kept, alice: User) -> None:
    closed = Kept(kept.root, UUID(int=7).hex)
    closed.path.chmod(0)
    printed = refused(kept)
    closed.path.chmod(0o700)
    assert f"{UUID(int=7).hex}: refused. events cannot be read: " in printed
    assert len(ids()) == 3


def test_facts_that_cannot_be_reached_cost_no_event(kept: Kept, alice: User) -> None:
    (kept.path / "base_state.json").unlink()
    (kept.path / "base_state.json").symlink_to(NOWHERE)
    printed = imported(kept)
    assert "skipped base_state.json: it cannot be read: " in printed
    assert len(ids()) == 3


def test_a_directory_that_names_no_conversation_is_refused(tmp_path: Path, alice: User) -> None:
    kept = Kept(tmp_path, "nameless")
    for name in ("base_state.json", "meta.json"):
        kept.write(name, {})
    assert "nameless: refused. " in refused(kept.path)


def test_the_console_command_imports(
    kept: Kept, alice: User, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["import", "openhands-v1", str(kept.path), "--timezone", "Europe/Berlin"]) == 0
    assert "imported 3 events" in capsys.readouterr().out


def test_the_console_command_fails_when_something_was_refused(
    kept: Kept, alice: User, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.write("owner_lease.json", {"expires_at": time.time() + 60})
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", "openhands-v1", str(kept.path)])
    assert ended.value.code == 1
    assert "Another server holds this conversation" in capsys.readouterr().out


def test_what_no_column_has_of_the_files_beside_the_events_is_a_record_without_keys(
    kept: Kept, alice: User
) -> None:
    kept.write("base_state.json", {**STATE, "future": {"level": 3, "api_key": "sk-0123456789"}})
    assert "imported 4 events" in imported(kept)
    updated_at = Conversation.objects.get().updated_at
    assert updated_at == Event.objects.get(seq=2).timestamp
    assert "imported 0 events, 4 already there" in imported(kept)
    payload = json.loads(Event.objects.get(seq=3).payload)
    assert (payload["key"], payload["value"]["name"]) == ("imported_record", "members of base_state.json")
    assert payload["value"]["record"] == {"future": {"level": 3, "api_key": "**********"}}
