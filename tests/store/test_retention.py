"""Retention: what is deleted by policies, what is purged when its time is over, and the command."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.utils import timezone

from conversations.exceptions import ConversationNotFound
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Purge
from conversations.store import creation, delete, deletion, purging
from sessions_app.live import marks
from sessions_app.models import (
    AgentLoop,
    ApiToken,
    ExecutionStatus,
    Grant,
    HousekeepingRound,
    RetentionPolicy,
)
from sessions_app.retention import policies, rounds
from tests.clients import WAIT_S
from tests.conftest import on_postgresql
from tests.events import event
from tests.threads import is_somebody_waiting

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def has_always_purged(database: None) -> None:
    """Forget when this installation began to purge, which the migrations have noted."""
    HousekeepingRound.objects.all().delete()


def quiet(owner: User, public_id: str, days: int = 100, **columns: Any) -> ConversationRef:
    """Make a conversation to which nothing was added for so many days."""
    made = creation.create(owner, conversation_id=public_id, **columns)
    Conversation.objects.filter(pk=made.pk).update(updated_at=timezone.now() - days * DAY)
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


def test_what_was_deleted_before_there_was_a_limit_has_its_time_from_then_on(alice: User) -> None:
    deleted(alice, "long", days=500)
    HousekeepingRound.objects.create(name=policies.SINCE, begun_at=timezone.now() - 10 * DAY)
    assert rounds.begin_due() == 0
    until = policies.kept_time().until(timezone.now() - 500 * DAY)
    assert until is not None
    assert abs(until - timezone.now() - 20 * DAY) < DAY
    HousekeepingRound.objects.update(begun_at=timezone.now() - 31 * DAY)
    assert rounds.begin_due() == 1


def test_a_policy_matches_by_age_label_and_owner(alice: User, bob: User) -> None:
    quiet(alice, "plain")
    quiet(alice, "marked", tags={"kind": "test"})
    quiet(bob, "other", tags={"kind": "test"})
    quiet(alice, "fresh", days=1, tags={"kind": "test"})
    assert matched(policy()) == {"plain", "marked", "other"}
    assert matched(policy(91, label="kind")) == {"marked", "other"}
    assert matched(policy(92, label="kind=test", owner=alice)) == {"marked"}
    assert matched(policy(93, label="kind=else")) == set()


def test_a_label_may_be_called_as_it_likes(alice: User) -> None:
    for number, name in enumerate(("2026", "a__b", "größe", "a.b", "$")):
        quiet(alice, f"of-{number}", tags={name: name})
        assert matched(policy(100 - number, label=name)) == {f"of-{number}"}
        assert matched(policy(90 - number, label=f"{name}={name}")) == {f"of-{number}"}


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
    assert purge_by_command("--label", "kind=test")["count"] == 1
    assert set(Conversation.objects.unpurged().values_list("public_id", flat=True)) == {"his", "standing"}
    assert purge_by_command("--conversation", "standing")["count"] == 1
    assert Purge.objects.filter(erased_at=None).count() == 0
    assert Event.objects.count() == 1


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
    purging.begin(conversation, requested_by="tests", reason="")
    purge_by_command()
    assert not Event.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--owner", "nobody"], "There is no user 'nobody'."),
        (["--conversation", "none"], "There is no such conversation: none."),
        (["--conversation", "a/b"], "invalid path characters"),
        (["--older-than", "-1"], "is not a whole number of days"),
        (["--older-than", "many"], "is not a whole number of days"),
    ],
)
def test_the_command_refuses_in_words(database: None, arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("purge_conversations", *arguments, "--yes")


def test_without_a_terminal_the_command_wants_a_yes(alice: User) -> None:
    deleted(alice, "gone", days=5)
    with pytest.raises(CommandError, match="Add --yes"):
        call_command("purge_conversations", "--deleted-for", "0", stdout=io.StringIO())
    assert Conversation.objects.deleted().exists()


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
