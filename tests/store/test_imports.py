"""Importing other programs' conversations: whole, once, accounted for, and without a trace in the source."""

from __future__ import annotations

import hashlib
import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import zstandard
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from conversations.models import Conversation, Event
from conversations.transcripts.sources import lines
from sessions_app.imports.importer import Importer
from sessions_app.live import marks
from sessions_app.models import AgentLoop, AgentSetup, ExecutionStatus
from sessions_app.settings.user_settings import create_custom_secret
from tests.support.data import hostile_databases
from tests.support.data.threads import in_threads

pytestmark = pytest.mark.one_engine

SAMPLES = Path(__file__).parents[1] / "data"
CLAUDE_CODE = SAMPLES / "claude-code" / "projects"
SOURCES = {
    "claude-code": CLAUDE_CODE,
    "codex": SAMPLES / "codex" / "sessions",
    "chatgpt": SAMPLES / "chatgpt",
    "claude-ai": SAMPLES / "claude-ai",
    "open-webui": SAMPLES / "open-webui",
    "hermes-webui": SAMPLES / "hermes-webui" / "webui",
}
OLD = "0a4d7c1e-1111-4222-8333-944455556666"
EMPTY = "9b9b9b9b-2222-4333-8444-a55566667777"
SHOP = "3f1c9a52-0b7e-4d1a-9a43-5a7d1e0c2b11"


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file count as one that is being written to, however new a checkout is."""
    monkeypatch.setattr(lines, "FRESH_S", 0.0)


def imported(*what: str, **options: Any) -> str:
    printed = StringIO()
    call_command("import_transcripts", *what, stdout=printed, **options)
    return printed.getvalue()


def told(tmp_path: Path, *what: str, **options: Any) -> dict[str, Any]:
    file = tmp_path / "report.json"
    imported(*what, report=file, **options)
    report: dict[str, Any] = json.loads(file.read_text())
    return {each["source_id"]: each for each in report["conversations"]}


def shown(conversation: Conversation) -> list[str]:
    """Return each event as its wire's name and its text."""
    rows = Event.objects.filter(conversation=conversation).order_by("seq")
    return [f"{row.type}: {row.text}" for row in rows]


def by_source(user: User, format: str, source_id: str) -> Conversation:
    return Conversation.objects.get(public_id=Importer(user=user, format=format).id_of(source_id))


def digest_of(directory: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        whole.update(
            str(file.relative_to(directory)).encode() + (file.read_bytes() if file.is_file() else b"")
        )
        whole.update(str(file.stat().st_mtime_ns).encode())
    return whole.hexdigest()


@pytest.mark.needs_engine
def test_a_session_is_stored_as_people_read_it(alice: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    talk = by_source(alice, "claude-code", SHOP)
    assert (talk.title, talk.llm_model, talk.branch) == (
        "A cent too much",
        "claude-sonnet-4-5-20250929",
        "main",
    )
    assert talk.tags == {"source": "claude-code", "source_id": SHOP, "directory": "/home/ana/shop"}
    assert AgentSetup.objects.get(conversation=talk).workspace["working_dir"] == "/home/ana/shop"
    assert [line for line in shown(talk) if "imported_record" not in line] == [
        "MessageEvent: Why does the checkout total differ by a cent?",
        "MessageEvent: ",  # only reasoning
        "MessageEvent: I will look at both sums at once.",
        'ActionEvent: Bash {"command":"grep -rn round shop/","description":"Find rounding"}',
        'ActionEvent: Read {"file_path":"/home/ana/shop/total.py"}',
        "ObservationEvent: shop/total.py:8: return round(x, 2)",
        "ObservationEvent: def total(x):\n    return round(x, 2)",
        "MessageEvent: `round` rounds half to even. Use Decimal.",
        "MessageEvent: Then change it.",
        'ActionEvent: Edit {"file_path":"/home/ana/shop/total.py","old_string":"round(x, 2)",'
        '"new_string":"x.quantize(CENT)"}',
        "ObservationEvent: The user doesn't want to proceed with this tool use.",
        "MessageEvent: And add a test.",
        "MessageEvent: Added a test as well.",
    ]


def test_what_is_imported_is_not_news_and_its_agent_has_finished(alice: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    talk = by_source(alice, "claude-code", SHOP)
    assert marks.seen_through(alice.pk, talk.ref) == talk.next_seq - 1
    assert AgentLoop.objects.get(conversation=talk).execution_status == ExecutionStatus.FINISHED


def test_times_reasoning_images_and_errors_are_kept(alice: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    talk = by_source(alice, "claude-code", f"{SHOP}/{UUID(int=20)}")
    rows = Event.objects.filter(conversation=talk).order_by("seq")
    assert {row.timestamp.year for row in rows} == {2026}
    assert talk.created_at.isoformat() == "2026-02-03T09:00:01.250000+00:00"
    payloads = [row.payload for row in rows]
    assert any('"reasoning_content":"Rounding, probably."' in payload for payload in payloads)
    assert any('"image_urls":["data:image/png;base64,iVBOR' in payload for payload in payloads)
    trunk = by_source(alice, "claude-code", SHOP)
    refused = Event.objects.get(conversation=trunk, text__startswith="The user doesn't want")
    assert '"is_error":true' in refused.payload
    assert '"tool_name":"Edit"' in refused.payload


def test_a_branch_begins_with_what_it_shares(alice: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    trunk = by_source(alice, "claude-code", SHOP)
    branch = by_source(alice, "claude-code", f"{SHOP}/{UUID(int=20)}")
    assert branch.forked_from == trunk
    assert branch.forked_at is not None
    through = branch.forked_at + 1
    assert shown(branch)[:through] == shown(trunk)[:through]
    assert shown(branch)[through].startswith("MessageEvent: Show me the receipt first:")
    assert branch.tags["shown_branch"] == "yes"
    assert branch.prompt_tokens < trunk.prompt_tokens  # what is shared counts once


def test_sub_agents_are_conversations_below_the_one_that_started_them(alice: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    of_its_own_file = by_source(alice, "claude-code", f"{SHOP}/agent-a2271d1")
    in_the_same_file = by_source(alice, "claude-code", f"{OLD}/agent {UUID(int=50)}")
    assert of_its_own_file.parent == by_source(alice, "claude-code", SHOP)
    assert in_the_same_file.parent == by_source(alice, "claude-code", OLD)
    assert of_its_own_file.title == "Find uses of round"
    said = [line for line in shown(in_the_same_file) if line.startswith("MessageEvent")]
    assert said == ["MessageEvent: Count the tests.", "MessageEvent: Seven."]


def test_the_report_accounts_for_every_line(alice: User, tmp_path: Path) -> None:
    report = told(tmp_path, "claude-code", str(CLAUDE_CODE))
    lines = {file.stem: len(file.read_text().splitlines()) for file in CLAUDE_CODE.rglob("*.jsonl")}
    found: dict[str, int] = {}
    for source_id, each in report.items():
        records = each["records"]
        dealt_with = records["stored"] + sum(records["skipped"].values()) + sum(records["refused"].values())
        assert dealt_with == records["found"]
        file = source_id.split("/")[-1] if "/agent-" in source_id else source_id.split("/")[0]
        found[file] = found.get(file, 0) + records["found"]
    assert found == lines
    branch = report[f"{SHOP}/{UUID(int=20)}"]
    assert branch["kept_as_they_were"]["unknown: teleported-from"] == 1
    assert branch["kept_as_they_were"]["damaged: line"] == 1
    assert branch["noted"] == {"it is not valid JSON": 1}
    assert report[SHOP]["noted"] == {"toolUseResult left out": 1}
    assert report[OLD]["records"]["skipped"] == {"an earlier line has the same uuid": 1}
    assert report[EMPTY]["conversation_id"] is None
    assert report[EMPTY]["records"]["skipped"] == {"nobody says anything in it": 1}


def test_a_damaged_line_is_kept_byte_for_byte(alice: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    talk = by_source(alice, "claude-code", f"{SHOP}/{UUID(int=20)}")
    last = Event.objects.filter(conversation=talk).order_by("-seq")[0]
    kept = json.loads(last.payload)["value"]
    assert (
        kept["record"].encode()
        == (CLAUDE_CODE / f"-home-ana-shop/{SHOP}.jsonl").read_bytes().split(b"\n")[-1]
    )


@pytest.mark.no_second_try
@pytest.mark.parametrize("format", SOURCES)
@pytest.mark.sampled(3)
def test_an_import_that_is_repeated_adds_nothing(format: str, alice: User, tmp_path: Path) -> None:
    first = told(tmp_path, format, str(SOURCES[format]))
    assert sum(each["events"]["added"] for each in first.values()) > 0
    before = list(Event.objects.values_list("conversation", "seq", "event_id", "payload"))
    assert all(each["events"]["added"] == 0 for each in told(tmp_path, str(SOURCES[format])).values())
    assert list(Event.objects.values_list("conversation", "seq", "event_id", "payload")) == before


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_two_imports_at_once_store_the_same_as_one(alice: User, bob: User) -> None:
    imported("claude-code", str(CLAUDE_CODE), owner=bob.username)

    def take(_: int) -> None:
        imported("claude-code", str(CLAUDE_CODE))

    in_threads(2, take)
    stored: dict[int, dict[str, list[str]]] = {alice.pk: {}, bob.pk: {}}
    for row in Conversation.objects.all():
        stored[row.owner_id][row.tags["source_id"]] = shown(row)
    assert stored[alice.pk] == stored[bob.pk]


@pytest.mark.no_second_try
def test_a_session_that_has_grown_brings_only_what_is_new(alice: User, tmp_path: Path) -> None:
    file = tmp_path / f"{SHOP}.jsonl"
    whole = (CLAUDE_CODE / f"-home-ana-shop/{SHOP}.jsonl").read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:13]))
    imported("claude-code", str(file))
    before = shown(by_source(alice, "claude-code", SHOP))
    file.write_bytes(b"".join(whole))
    imported("claude-code", str(file))
    after = shown(by_source(alice, "claude-code", SHOP))
    assert after[: len(before)] == before
    imported("claude-code", str(CLAUDE_CODE))
    assert shown(by_source(alice, "claude-code", SHOP)) == after


def test_a_session_that_its_program_has_packed_meanwhile_adds_nothing(alice: User, tmp_path: Path) -> None:
    sessions = shutil.copytree(SOURCES["codex"], tmp_path / "sessions")
    imported("codex", str(sessions))
    before = list(Event.objects.values_list("conversation", "seq", "event_id", "payload"))
    for file in sessions.rglob("*.jsonl"):
        file.with_name(f"{file.name}.zst").write_bytes(zstandard.compress(file.read_bytes()))
        file.unlink()
    assert "failed: 0; imported 0 events" in imported("codex", str(sessions))
    assert list(Event.objects.values_list("conversation", "seq", "event_id", "payload")) == before


def test_the_source_is_never_changed(alice: User) -> None:
    before = digest_of(CLAUDE_CODE)
    imported("claude-code", str(CLAUDE_CODE))
    assert digest_of(CLAUDE_CODE) == before


def test_a_dry_run_stores_nothing_and_says_what_it_would(alice: User) -> None:
    said = imported("claude-code", str(CLAUDE_CODE), dry_run=True)
    assert "would import" in said
    assert not Conversation.objects.exists()


def test_a_hostile_database_of_a_directory_deletes_nothing_and_the_rest_is_imported(
    alice: User, tmp_path: Path
) -> None:
    victim = tmp_path / "id_rsa"
    victim.write_text("a key of the user's")
    state = shutil.copytree(SOURCES["hermes-webui"], tmp_path / "webui")
    hostile_databases.with_super_journal(state / "state.db", victim)
    report = tmp_path / "report.json"
    with pytest.raises(CommandError):
        imported("hermes-webui", str(state), report=report)
    found = json.loads(report.read_text())
    assert "state.db-journal is beside it" in found["failed"]["state.db"]
    assert found["conversations"]
    assert victim.exists()


def test_registered_secrets_are_masked_in_events_and_titles(alice: User, tmp_path: Path) -> None:
    create_custom_secret(alice.pk, "TOKEN", "hunter2-hunter2", description="")
    line = {"type": "user", "uuid": "1", "sessionId": "s", "message": {"content": "use hunter2-hunter2"}}
    (tmp_path / "s.jsonl").write_text(json.dumps(line) + "\n")
    said = imported("claude-code", str(tmp_path))
    talk = by_source(alice, "claude-code", "s")
    assert "hunter2-hunter2" not in f"{talk.title} {shown(talk)}"
    assert "secrets masked in 1." in said


def test_another_users_import_is_a_conversation_of_its_own(alice: User, bob: User) -> None:
    imported("claude-code", str(CLAUDE_CODE))
    imported("claude-code", str(CLAUDE_CODE), owner=bob.username)
    assert by_source(alice, "claude-code", SHOP) != by_source(bob, "claude-code", SHOP)


@pytest.mark.parametrize(
    ("name", "path"), [("openhands-v0", SAMPLES / "openhands-v0-store"), ("chatgpt", SOURCES["chatgpt"])]
)
def test_a_format_that_cannot_be_followed_says_so(name: str, path: Path, alice: User) -> None:
    with pytest.raises(CommandError, match=rf"^{name} cannot be followed: leave out --follow\.$"):
        imported(name, str(path), follow=True)


@pytest.mark.parametrize("what", [[], ["claude-code", "{}"], ["{}"], ["{}/nowhere"], ["a", "b"]])
def test_what_cannot_be_imported_is_named(what: list[str], alice: User, tmp_path: Path) -> None:
    with pytest.raises(CommandError):
        imported(*(each.format(tmp_path) for each in what))
