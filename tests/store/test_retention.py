"""Retention: what is deleted by policies, what is purged when its time is over, and the command."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections
from django.utils import timezone

from conversations.exceptions import ConversationNotFound
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Purge, Version
from conversations.store import creation, delete, deletion, importing, purging
from convserver.backups.taking_over import void_leases
from sessions_app.live import marks
from sessions_app.models import (
    AgentLoop,
    ApiToken,
    DeletedLimit,
    ExecutionStatus,
    Grant,
    RetentionPolicy,
)
from sessions_app.retention import limit, policies, rounds
from sessions_app.retention.failures import RetentionFailures
from sessions_app.retention.rounds import Retention
from tests.conftest import on_postgresql
from tests.support.data.events import event, payload
from tests.support.data.refusing import refusing
from tests.support.data.threads import is_somebody_waiting
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.one_engine

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def has_always_purged(database: None) -> None:
    """Let the limit of 30 days have been in force for long."""
    limited(since_days=10_000)


def limited(*, since_days: int, days: int | None = 30) -> None:
    """Let this limit have been in force for so many days."""
    since = timezone.now() - since_days * DAY
    DeletedLimit.objects.update_or_create(pk=limit.ONLY, defaults={"days": days, "since": since})


def quiet(owner: User, public_id: str, days: int = 100, **columns: Any) -> ConversationRef:
    """Make a conversation to which nothing was added for so many days."""
    made = creation.create(owner, conversation_id=public_id, **columns)
    moment = timezone.now() - days * DAY
    Conversation.objects.filter(pk=made.pk).update(updated_at=moment, listed_at=moment)
    return made


def deleted(owner: User, public_id: str, days: int = 0) -> ConversationRef:
    """Make a conversation that was deleted so many days ago."""
    made = creation.create(owner, conversation_id=public_id)
    writes.append(made, [event("x" * 100)])
    deletion.soft_delete(made)
    Conversation.objects.filter(pk=made.pk).update(deleted_at=timezone.now() - days * DAY)
    return made


def policy(days: int = 90, **columns: Any) -> RetentionPolicy:
    return RetentionPolicy.objects.create(name=f"after {days}", older_than_days=days, **columns)


def matched(rule: RetentionPolicy) -> set[str]:
    return set(policies.matched(rule).values_list("public_id", flat=True))


def purge_by_command(*arguments: str) -> dict[str, Any]:
    """Run the command and return what it reports."""
    out = io.StringIO()
    call_command("purge_conversations", *arguments, "--yes", "--json", stdout=out)
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


@pytest.mark.needs_engine
def test_what_was_deleted_long_enough_ago_is_purged(alice: User) -> None:
    deleted(alice, "long", days=31)
    deleted(alice, "lately", days=29)
    creation.create(alice, conversation_id="standing")
    assert rounds.begin_due() == 1
    rounds.finish_all()
    assert [each.public_id for each in Conversation.objects.purged()] == ["long"]
    record = Purge.objects.get()
    assert (record.requested_by, record.reason) == ("retention", "deleted 31 days ago")
    assert Event.objects.count() == 1


def test_without_a_limit_nothing_is_purged(alice: User, configured: Callable[..., None]) -> None:
    configured(deleted_days=None)
    deleted(alice, "long", days=10_000)
    assert rounds.begin_due() == 0


@pytest.mark.needs_engine
def test_what_was_deleted_before_there_was_a_limit_has_its_time_from_then_on(alice: User) -> None:
    deleted(alice, "long", days=500)
    limited(since_days=10)
    assert rounds.begin_due() == 0
    until = limit.kept_time().until(timezone.now() - 500 * DAY)
    assert until is not None
    assert abs(until - timezone.now() - 20 * DAY) < DAY
    limited(since_days=31)
    assert rounds.begin_due() == 1


@pytest.mark.parametrize("before", [31, None])
def test_a_limit_that_is_shortened_or_switched_on_counts_from_then_on(
    alice: User, before: int | None
) -> None:
    deleted(alice, "long", days=500)
    limited(since_days=400, days=before)
    assert rounds.begin_due() == 0
    assert rounds.begin_due() == 0
    assert limit.kept_time().days == 30
    assert timezone.now() - limit.kept_time().since < DAY


def test_a_limit_that_is_lengthened_goes_on(alice: User) -> None:
    deleted(alice, "long", days=500)
    limited(since_days=400, days=7)
    assert rounds.begin_due() == 1
    assert DeletedLimit.objects.get().days == 30


def test_where_no_limit_is_noted_it_begins_now(alice: User) -> None:
    deleted(alice, "long", days=500)
    DeletedLimit.objects.all().delete()
    assert rounds.begin_due() == 0
    assert timezone.now() - DeletedLimit.objects.get().since < DAY


def test_after_a_restore_of_a_backup_deleted_conversations_have_their_full_time_again(alice: User) -> None:
    deleted(alice, "long", days=500)
    void_leases(connection)
    assert rounds.begin_due() == 0


@pytest.mark.needs_engine
def test_a_purge_that_cannot_begin_keeps_no_other_from_it(alice: User) -> None:
    first = deleted(alice, "first", days=40)
    deleted(alice, "second", days=35)
    quiet(alice, "old")
    policy(is_enabled=True)
    failures = RetentionFailures()
    with refusing("UPDATE", "conversations_conversation", f"id = {first.pk}"):
        assert rounds.begin_due(failures) == 1
    assert [name for name, _ in failures.found] == ["first"]
    assert Conversation.objects.purged().get().public_id == "second"
    assert set(Conversation.objects.deleted().values_list("public_id", flat=True)) == {"first", "old"}


@pytest.mark.needs_engine
def test_when_as_many_are_purged_as_are_begun_at_once_the_next_follow(
    live: None, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "BEGUN_AT_ONCE", 2)
    for number in range(5):
        deleted(alice, f"gone-{number}", days=40)
    asyncio.run(Retention().round())
    assert Purge.objects.filter(finished_at__isnull=False).count() == 5


def test_a_round_cleans_the_files_though_a_purge_fails(live: None, alice: User) -> None:
    stuck = deleted(alice, "stuck", days=41)
    deleted(alice, "gone", days=40)
    with refusing("DELETE", "conversations_event", f"conversation_id = {stuck.pk}"):
        asyncio.run(Retention().round())
    assert Purge.objects.get(conversation_id=stuck.pk).finished_at is None
    assert Purge.objects.get(erased_at__isnull=False).conversation.public_id == "gone"


@pytest.mark.no_second_try
def test_what_was_restored_is_not_deleted_again_by_the_same_policy(alice: User) -> None:
    conversation = quiet(alice, "old")
    policy(is_enabled=True)
    rounds.begin_due()
    deletion.restore(conversation)
    rounds.begin_due()
    assert Conversation.objects.active().exists()
    assert purge_by_command("--older-than", "90")["count"] == 0


def test_an_old_conversation_that_was_imported_just_now_is_not_deleted_by_a_policy(alice: User) -> None:
    stamped = event(raw=payload("long ago", timestamp="2020-01-01T00:00:00.000000"))
    importing.import_conversation(alice, [stamped], conversation_id="old", version=Version.V0)
    row = Conversation.objects.get()
    assert timezone.now() - row.updated_at > 400 * DAY
    policy(is_enabled=True)
    rounds.begin_due()
    assert Conversation.objects.active().exists()


def test_what_was_purged_is_not_imported_again_and_it_is_said_why(alice: User) -> None:
    conversation = deleted(alice, "gone")
    purging.begin(conversation, among=Conversation.objects.deleted(), requested_by="tests", reason="")
    with pytest.raises(importing.ImportRefused, match="for good, and its id cannot be used again"):
        importing.standing(alice, "gone", Version.V0)


@pytest.mark.needs_engine
def test_a_policy_matches_by_age_label_and_owner(alice: User, bob: User) -> None:
    quiet(alice, "plain")
    quiet(alice, "marked", tags={"kind": "test"})
    quiet(bob, "other", tags={"kind": "test"})
    quiet(alice, "fresh", days=1, tags={"kind": "test"})
    assert matched(policy()) == {"plain", "marked", "other"}
    assert matched(policy(91, label="kind")) == {"marked", "other"}
    assert matched(policy(92, label="kind=test", owner=alice)) == {"marked"}
    assert matched(policy(93, label="kind=else")) == set()


@pytest.mark.needs_engine
def test_a_label_may_be_called_as_it_likes(alice: User) -> None:
    for number, name in enumerate(("2026", "a__b", "größe", "a.b", "$")):
        quiet(alice, f"of-{number}", tags={name: name})
        assert matched(policy(100 - number, label=name)) == {f"of-{number}"}
        assert matched(policy(90 - number, label=f"{name}={name}")) == {f"of-{number}"}


@pytest.mark.needs_engine
def test_pinned_shared_and_working_conversations_are_spared(alice: User) -> None:
    names = ("pinned", "shared", "working", "asked", "deleted", "free")
    made = {name: quiet(alice, name) for name in names}
    marks.mark(alice.pk, made["pinned"], pinned=True)
    ApiToken.issue(alice.pk, "for somebody", Grant(conversation=made["shared"]))
    AgentLoop.objects.create(
        conversation_id=made["working"].pk, execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION
    )
    Conversation.objects.filter(pk=made["asked"].pk).update(asked_through=5)
    deletion.soft_delete(made["deleted"])
    assert matched(policy()) == {"free"}


@pytest.mark.needs_engine
def test_only_policies_in_force_delete_and_what_they_delete_can_be_restored(alice: User) -> None:
    conversation = quiet(alice, "old")
    rule = policy()
    rounds.begin_due()
    assert Conversation.objects.active().exists()
    RetentionPolicy.objects.filter(pk=rule.pk).update(is_enabled=True)
    rounds.begin_due()
    assert not Conversation.objects.active().exists()
    deletion.restore(conversation)
    assert Conversation.objects.active().exists()


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_policy_leaves_what_was_used_while_it_was_applied(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = quiet(alice, "old")
    windows = policies.windows

    def use_first(rows: Any) -> Any:
        for window in windows(rows):
            found = list(window)
            writes.append(conversation, [event("back again")])
            yield found

    monkeypatch.setattr(policies, "windows", use_first)
    assert policies.apply(policy(), limit=10) == 0
    assert Conversation.objects.active().exists()


def test_a_dry_run_shows_what_would_go_and_changes_nothing(alice: User) -> None:
    deleted(alice, "gone", days=5)
    quiet(alice, "old")
    out = io.StringIO()
    call_command("purge_conversations", "--deleted-for", "3", "--dry-run", stdout=out)
    assert "To purge: 1 conversation, 1 event," in out.getvalue()
    out = io.StringIO()
    call_command("purge_conversations", "--older-than", "90", "--dry-run", "--json", stdout=out)
    report = json.loads(out.getvalue())
    assert (report["purged"], [each["id"] for each in report["conversations"]]) == (False, ["old"])
    assert Conversation.objects.deleted().count() == Conversation.objects.active().count() == 1
    assert not Purge.objects.exists()


def test_the_command_purges_what_it_is_told_to(alice: User, bob: User) -> None:
    deleted(alice, "hers", days=5)
    deleted(bob, "his", days=5)
    quiet(alice, "old", tags={"kind": "test"})
    standing = creation.create(alice, conversation_id="standing")
    marks.mark(alice.pk, standing, pinned=True)
    report = purge_by_command("--deleted-for", "3", "--owner", alice.username)
    assert (report["count"], report["events"], report["bytes"] > 100) == (1, 1, True)
    assert purge_by_command("--label", "kind=test")["count"] == 0
    assert purge_by_command("--label", "kind=test", "--older-than", "90")["count"] == 1
    assert set(Conversation.objects.unpurged().values_list("public_id", flat=True)) == {"his", "standing"}
    assert purge_by_command("--conversation", "standing")["count"] == 1
    assert Purge.objects.filter(erased_at=None).count() == 0
    assert Event.objects.count() == 1


@pytest.mark.parametrize("selector", ["--owner", "--label"])
def test_without_an_age_the_command_leaves_what_is_not_deleted(alice: User, selector: str) -> None:
    quiet(alice, "standing", tags={"kind": "test"})
    gone = quiet(alice, "gone", tags={"kind": "test"})
    deletion.soft_delete(gone)
    report = purge_by_command(selector, {"--owner": alice.username, "--label": "kind"}[selector])
    assert [each["id"] for each in report["conversations"]] == ["gone"]
    assert Conversation.objects.active().get().public_id == "standing"


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_what_changes_between_the_question_and_the_purge_is_skipped(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored, used = deleted(alice, "restored", days=5), quiet(alice, "used")
    quiet(alice, "old")

    class Terminal:
        """Somebody who answers after others have changed two of the conversations."""

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            deletion.restore(restored)
            writes.append(used, [event("back again")])
            return "purge\n"

    Conversation.objects.filter(pk=restored.pk).update(updated_at=timezone.now() - 100 * DAY)
    monkeypatch.setattr(sys, "stdin", Terminal())
    out = io.StringIO()
    call_command("purge_conversations", "--older-than", "90", stdout=out)
    assert "To purge: 3 conversations" in out.getvalue()
    assert "Purged: 1 conversation." in out.getvalue()
    assert "Skipped, since they changed meanwhile: 2." in out.getvalue()
    assert set(Conversation.objects.active().values_list("public_id", flat=True)) == {"restored", "used"}


def test_the_command_goes_on_past_what_fails_and_says_so_at_the_end(alice: User) -> None:
    first = deleted(alice, "first", days=5)
    deleted(alice, "second", days=5)
    with (
        refusing("UPDATE", "conversations_conversation", f"id = {first.pk}"),
        pytest.raises(CommandError, match=r"Not everything could be done\. first: "),
    ):
        purge_by_command("--deleted-for", "3")
    assert Conversation.objects.purged().get().public_id == "second"
    assert Purge.objects.get().erased_at is not None


def test_without_a_selection_the_command_does_what_the_server_does(alice: User) -> None:
    deleted(alice, "long", days=31)
    quiet(alice, "old")
    policy(is_enabled=True)
    report = purge_by_command()
    assert [each["id"] for each in report["conversations"]] == ["long"]
    assert report["deleted_by_policies"] == ["old"]
    assert Conversation.objects.deleted().get().public_id == "old"


def test_the_command_finishes_purges_that_were_interrupted(conversation: ConversationRef) -> None:
    writes.append(conversation, [event()])
    purging.begin(conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason="")
    purge_by_command()
    assert not Event.objects.exists()


def test_the_command_refuses_in_words(subtests: pytest.Subtests, database: None) -> None:
    for arguments, words in [
        (["--owner", "nobody"], "There is no user 'nobody'."),
        (["--conversation", "none"], "There is no such conversation: none."),
        (["--conversation", "a/b"], "invalid path characters"),
        (["--older-than", "-1"], "is not a whole number of days"),
        (["--older-than", "many"], "is not a whole number of days"),
    ]:
        with subtests.test(arguments=arguments), pytest.raises(CommandError, match=words):
            call_command("purge_conversations", *arguments, "--yes")


def test_without_a_terminal_the_command_wants_a_yes(alice: User) -> None:
    deleted(alice, "gone", days=5)
    with pytest.raises(CommandError, match="Add --yes"):
        call_command("purge_conversations", "--deleted-for", "0", stdout=io.StringIO())
    assert Conversation.objects.deleted().exists()


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@on_postgresql
def test_nothing_is_added_between_the_last_look_of_a_policy_and_its_deletion(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = quiet(alice, "old")
    is_over = threading.Event()
    refused: list[Exception] = []

    def add() -> None:
        try:
            writes.append(conversation, [event("back again")])
        except ConversationNotFound as error:
            refused.append(error)
        finally:
            is_over.set()
            connections.close_all()

    adding = threading.Thread(target=add)

    def delete_slowly(found: ConversationRef) -> None:
        adding.start()
        deadline = time.monotonic() + WAIT_S
        while not is_over.is_set() and not is_somebody_waiting():
            assert time.monotonic() < deadline
        delete(found)

    monkeypatch.setattr(policies, "delete", delete_slowly)
    assert policies.apply(policy(), limit=10) == 1
    adding.join(WAIT_S)
    assert len(refused) == 1
    assert not Event.objects.exists()
