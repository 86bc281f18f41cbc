"""Who verifies, when, and what is said of it: the commands, each start, and every night."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.core.management import load_command_class
from django.db import OperationalError, connection
from django.db.models import F
from django.utils import timezone

from conversations.log import writes
from conversations.models import ConversationRef, Occasion, VerificationFinding, VerificationRun
from conversations.search.fulltext import indexing
from conversations.verification import derived, records
from sessions_app.models import HousekeepingRound
from sessions_app.processes import this_process
from sessions_app.verification import rounds
from tests.support.data.damage import change, damaged, other_text, unguarded
from tests.support.data.events import event, payload

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def log(conversation: ConversationRef) -> ConversationRef:
    """A log of three events."""
    writes.append(conversation, [event(event_id=f"e{number}") for number in range(3)])
    return conversation


@pytest.fixture
def command(database: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command and return its exit status, what it printed, and what it complained about."""

    def run(name: str, *arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = 0
        try:
            load_command_class("sessions_app", name).run_from_argv(["convserver", name, *map(str, arguments)])
        except SystemExit as end:
            status = int(end.code or 0)
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of the operator's key."""
    path = tmp_path / "key.pem"
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem)
    return path


def test_the_exit_status_says_whether_the_store_is_whole(log: ConversationRef, command: Run) -> None:
    status, said, _ = command("verify")
    assert (status, said.startswith("Whole: 1 conversation, 3 events ")) == (0, True)
    change(log, 1, payload=other_text(payload()))
    status, said, _ = command("verify")
    assert status == 1
    assert "conversation talk, seq 1: Event 1 (e1) is not what was stored: its digest differs." in said
    assert "DAMAGED, 1 place" in said
    assert damaged(log) == [("changed", 1)]


def test_the_result_can_be_read_by_a_program(log: ConversationRef, command: Run) -> None:
    change(log, 1, payload=other_text(payload()))
    status, said, _ = command("verify", "--json", "--columns", "--search")
    found = json.loads(said)
    assert status == 1
    assert (found["outcome"], found["problems"]) == ("damaged", 2)
    assert [(each["conversation"], each["seq"], each["problem"]) for each in found["damage"]] == [
        ("talk", 1, "changed"),
        ("talk", 1, "column"),  # the text that was read off the payload when it was stored
    ]


def test_only_some_conversations_can_be_verified(log: ConversationRef, command: Run) -> None:
    change(log, 1, payload=other_text(payload()))
    assert command("verify", "--conversation", "talk")[0] == 1
    assert command("verify", "--since", "2999-01-01")[0] == 0
    assert damaged(log) == [("changed", 1)]  # of which the last run says nothing


def test_what_cannot_be_verified_has_a_status_of_its_own(
    subtests: pytest.Subtests, log: ConversationRef, command: Run
) -> None:
    for arguments, reason in [
        (("--conversation", "nobody's"), "There is no conversation nobody's."),
        (("--conversation", "a/b"), "invalid path characters"),
        (("--since", "yesterday"), "'yesterday' is not a time"),
        (("--against", "nowhere.jsonl"), "Name the key: --key FILE"),
        (("--against", "nowhere.jsonl", "--key", "nowhere.pem"), "nowhere.pem cannot be read"),
        (("--no-such-option",), "unrecognized arguments"),
        (("--repair-derived", "--conversation", "talk"), "leave out --conversation"),
        (("--repair-derived", "--since", "2026-01-01"), "leave out --conversation"),
    ]:
        with subtests.test(arguments=arguments, reason=reason):
            status, said, complaint = command("verify", *arguments)
            assert (status, said) == (2, "")
            assert reason in complaint
            assert not VerificationRun.objects.exists()


def test_a_checkpoint_is_written_and_compared(
    log: ConversationRef, command: Run, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.jsonl"
    status, said, _ = command("checkpoint", path, "--key", key)
    assert status == 0
    assert "1 conversation, 3 events, signed by the key " in said
    assert command("checkpoint", path, "--key", key)[0] == 2  # it exists already
    monkeypatch.setenv("CONVSERVER_CHECKPOINT_KEY", str(key))
    assert command("verify", "--against", path)[0] == 0
    change(log, 2, timestamp=F("timestamp") + timedelta(hours=1))
    status, said, _ = command("verify", "--against", path)
    assert status == 1
    assert "conversation talk, seq 2: Event 2 has another time, cause" in said


def test_a_checkpoint_that_cannot_be_trusted_is_refused(
    log: ConversationRef, command: Run, key: Path, tmp_path: Path
) -> None:
    path, other = tmp_path / "checkpoint.jsonl", tmp_path / "other.pem"
    command("checkpoint", path, "--key", key)
    other.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    status, _, complaint = command("verify", "--against", path, "--key", other)
    assert (status, "signed by another key" in complaint) == (2, True)


def test_a_key_of_another_sort_is_refused(
    log: ConversationRef, command: Run, key: Path, tmp_path: Path
) -> None:
    rsa = generate_private_key(65537, 2048)
    key.write_bytes(rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    status, _, complaint = command("checkpoint", tmp_path / "checkpoint.jsonl", "--key", key)
    assert (status, "another sort than Ed25519" in complaint) == (2, True)
    assert list(tmp_path.glob("checkpoint*")) == []


def test_indexes_are_rebuilt_on_request_and_events_are_not_touched(
    log: ConversationRef, command: Run
) -> None:
    indexing.rebuild()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM conversations_searchtext")
    assert command("verify", "--search")[0] == 1
    status, said, _ = command("verify", "--search", "--repair-derived")
    assert status == 0
    assert "The indexes were rebuilt from 3 events." in said
    assert command("verify", "--search")[0] == 0


def test_what_an_earlier_run_found_in_the_indexes_is_rebuilt_whatever_this_one_samples(
    log: ConversationRef, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "SAMPLES", 0)
    monkeypatch.setattr(records, "FOUND_MAX", 1)
    indexing.rebuild()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM conversations_searchtext")
    assert command("verify", "--search")[0] == 1
    change(log, 1, payload=other_text(payload()))  # more is found than a run lists
    status, said, _ = command("verify", "--repair-derived")
    assert (status, "The indexes were rebuilt from 3 events." in said) == (1, True)
    assert "DAMAGED, 1 place:" in said
    assert not VerificationFinding.objects.filter(problem="search").exists()


# The server


async def test_a_start_verifies_what_changed_since_it_last_found_nothing(
    live: None, log: ConversationRef, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rounds, "START_AFTER_S", 0.0)
    await rounds.verify(is_housekeeper=False)
    await rounds.verify(is_housekeeper=False)
    await asyncio.to_thread(change, log, 1, payload=other_text(payload()))
    await asyncio.to_thread(writes.append, log, [event()])
    with caplog.at_level(logging.ERROR):
        await rounds.verify(is_housekeeper=False)
    runs = await asyncio.to_thread(lambda: list(VerificationRun.objects.order_by("pk")))
    assert [(run.occasion, run.outcome, run.events) for run in runs] == [
        ("start", "whole", 3),
        ("start", "whole", 0),
        ("start", "damaged", 4),
    ]
    assert "The store is damaged, places: 1. The first: conversation talk, seq 1: Event 1 (e1)" in caplog.text


async def test_a_night_verifies_everything_and_a_failure_is_recorded(
    live: None, log: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rounds._made(Occasion.NIGHT, rest=0.0)

    def fails(*args: object, **options: object) -> object:
        raise OSError("the disk is gone")

    monkeypatch.setattr("sessions_app.verification.checks.store.steps", fails)
    await rounds._made(Occasion.NIGHT, rest=0.0)
    runs = await asyncio.to_thread(lambda: list(VerificationRun.objects.order_by("pk")))
    assert [(run.occasion, run.outcome, run.detail) for run in runs] == [
        ("night", "whole", ""),
        ("night", "failed", "OSError: the disk is gone"),
    ]


async def test_a_failure_tells_nothing_of_what_is_stored(
    live: None, log: ConversationRef, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: object, **options: object) -> object:
        raise OperationalError("Could not decode to UTF-8 column 'payload' with text 'a secret'")

    monkeypatch.setattr("sessions_app.verification.checks.store.steps", fails)
    await rounds._made(Occasion.NIGHT, rest=0.0)
    ended = await asyncio.to_thread(VerificationRun.objects.get)
    assert (ended.outcome, "secret" in ended.detail) == ("failed", False)
    assert "secret" not in caplog.text


async def test_an_interrupted_night_is_made_again(
    live: None, log: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "NIGHT_HOURS", range(24))
    assert await asyncio.to_thread(rounds._take_night)
    begun, make = asyncio.Event(), rounds._make

    async def noted(*arguments: Any) -> None:
        begun.set()
        await make(*arguments)

    monkeypatch.setattr(rounds, "_make", noted)
    going_on = asyncio.create_task(rounds._made(Occasion.NIGHT, rest=1e6))
    await begun.wait()
    going_on.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going_on
    ended = await asyncio.to_thread(VerificationRun.objects.get)
    assert (ended.outcome, ended.detail) == ("failed", "It was interrupted.")
    assert await asyncio.to_thread(rounds._take_night)


def test_the_night_of_a_process_that_was_killed_is_closed_and_made_again(
    log: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "NIGHT_HOURS", range(24))
    here = this_process()
    dead = subprocess.Popen(["true"])
    dead.wait()
    elsewhere = records.begin(Occasion.COMMAND, "all", host="elsewhere", pid=1).run
    assert rounds._take_night()
    killed = records.begin(Occasion.NIGHT, "all", host=here.host, pid=dead.pid).run
    assert rounds._take_night()  # another process looks
    assert not rounds._take_night()
    again = records.begin(Occasion.NIGHT, "all", host=here.host, pid=dead.pid).run
    own, _ = rounds.begin(Occasion.START)  # it starts anew
    assert rounds._take_night()
    outcomes = dict(VerificationRun.objects.values_list("pk", "outcome"))
    assert outcomes == {killed.pk: "failed", again.pk: "failed", elsewhere.pk: "", own.run.pk: ""}


def test_a_clock_that_is_ahead_of_the_database_puts_no_night_off(
    log: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "NIGHT_HOURS", range(24))
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime.now(UTC) + timedelta(minutes=1))
    assert rounds._take_night()
    rounds._give_up(rounds.begin(Occasion.NIGHT)[0], "The disk is full.")
    assert rounds._take_night()
    assert not rounds._take_night()


def test_an_unfinished_night_counts_from_the_one_before(log: ConversationRef) -> None:
    assert rounds._take_night()
    finished = rounds.begin(Occasion.NIGHT)[0]
    finished.end()
    three_days_ago = timezone.now() - timedelta(days=3)
    VerificationRun.objects.update(started_at=three_days_ago)
    rounds._give_up(rounds.begin(Occasion.NIGHT)[0], "The disk is full.")
    assert HousekeepingRound.objects.get(name="verification").begun_at == three_days_ago


@pytest.mark.no_second_try
def test_one_process_of_the_installation_verifies_each_night(database: None) -> None:
    assert rounds._take_night()
    assert not rounds._take_night()
    HousekeepingRound.objects.filter(name="verification").update(begun_at=F("begun_at") - timedelta(hours=49))
    assert rounds._take_night()


def test_a_store_without_guards_is_told_of(log: ConversationRef, command: Run) -> None:
    with unguarded("event_refuse_delete"):
        status, said, _ = command("verify")
    assert status == 1
    assert "The guard event_refuse_delete is missing" in said
