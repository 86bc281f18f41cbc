"""What needs attention, on the admin's first page: what it is, since when, and where one acts."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.utils import timezone

from conversations.events import ConversationRef
from conversations.log import writes
from sessions_app.models import AgentLoop, BackupOutcome, BackupRecord, Delivery, Endpoint, ProcessRecord
from sessions_app.webhooks import deliveries, transport
from sessions_app.webhooks.transport import WebhookCredentials
from tests.doors.admin.test_admin_overview import PAGE, boss, listed, make_loop
from tests.support.data.events import event
from tests.support.data.held_locks import held_lock

__all__ = ["boss"]
WELL = "Nothing needs attention"
LONG_AGO = timedelta(minutes=9)
CARD = re.compile(r'<article [^>]*data-problem="(\w+)">(.*?)<a class="admin-link" href="([^"]*)">', re.DOTALL)


@pytest.fixture(autouse=True)
def backup(database: None) -> BackupRecord:
    """A store with a backup, as it should be."""
    return BackupRecord.objects.create(
        began_at=timezone.now(), host="here", place="/backups/one", outcome=BackupOutcome.MADE
    )


def cards(browser: Browser) -> dict[str, tuple[str, str]]:
    """Return the text and the link of each problem, by its kind."""
    found = CARD.findall(browser.get(PAGE).content.decode())
    text = {kind: " ".join(unescape(re.sub("<[^>]+>", " ", words)).split()) for kind, words, _ in found}
    return {kind: (text[kind], unescape(link)) for kind, _, link in found}


def gone(**columns: Any) -> ProcessRecord:
    seen = timezone.now() - LONG_AGO
    values = {"role": "worker", "host": "host-a x", "pid": 42, "started": 1.0, "version": "1"}
    return ProcessRecord.objects.create(**{**values, "began_at": seen, "seen_at": seen, **columns})


def test_a_store_that_is_well_says_so(boss: Browser) -> None:
    page = boss.get(PAGE).content.decode()
    assert WELL in page
    assert cards(boss) == {}


def test_each_problem_has_a_card_that_leads_to_where_one_acts(
    boss: Browser, conversation: ConversationRef, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_loop(conversation, since=LONG_AGO)
    gone()
    _fail_delivery(conversation)
    BackupRecord.objects.all().delete()
    with held_lock(monkeypatch):
        shown = cards(boss)
    expected = {
        "stalled_loop": ("1 agent is at work, but nothing has come of it", "for 9 min"),
        "process_gone": ("The worker 42 on host-a is gone", "for 9 min"),
        "webhooks_fail": ("Webhooks do not go out: deliveries fail for 1 conversation.", "for 9 min"),
        "lock_held": ("A lock is held by ", "for 0 s"),
        "backup_missing": ("No backup of this store has ever been made.", "Since the first start"),
    }
    assert shown.keys() == expected.keys()
    for kind, parts in expected.items():
        with subtests.test(kind):
            text, link = shown[kind]
            assert all(part in text for part in parts), text
            assert boss.get(link).status_code == 200
            assert bool(listed(boss, link)) is (kind != "backup_missing")
    assert WELL not in boss.get(PAGE).content.decode()


def _fail_delivery(conversation: ConversationRef) -> None:
    endpoint = Endpoint(name="all", base_url="https://example.org")
    transport.seal_into(endpoint, WebhookCredentials({}, ""))
    Delivery.objects.create(
        endpoint=deliveries.begin(endpoint),
        conversation_id=conversation.pk,
        due_at=timezone.now(),
        since=timezone.now() - LONG_AGO,
        tries=2,
    )


def test_messages_that_no_agent_takes_are_shown_once_they_have_waited_for_long(
    boss: Browser, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes.append(conversation, [event("Hello", is_input=True)])
    assert "messages_wait" not in cards(boss)
    monkeypatch.setattr("sessions_app.operation.problems.WAITS_LONG", timedelta())
    text, _ = cards(boss)["messages_wait"]
    assert text.startswith("1 conversation waits for an answer, and no agent has begun.")
    loop = {"status": "running", "lease_expires_at": timezone.now() + timedelta(seconds=10)}
    AgentLoop.objects.create(conversation_id=conversation.pk, **loop)
    assert "messages_wait" not in cards(boss)


def test_a_backup_that_is_old_or_failed_is_shown_with_its_error(boss: Browser, backup: BackupRecord) -> None:
    failed = {"began_at": timezone.now(), "host": "here", "place": "/x", "outcome": BackupOutcome.FAILED}
    BackupRecord.objects.create(**failed, detail="The disk is full.")
    assert cards(boss) == {}  # there is another one
    BackupRecord.objects.filter(pk=backup.pk).update(ended_at=timezone.now() - timedelta(days=3))
    text, _ = cards(boss)["backup_missing"]
    assert "is older than 2 days. The last one (failed): The disk is full." in text
    assert "for 3 d 0 h" in text


def test_a_backup_that_is_not_what_its_manifest_says_is_none(boss: Browser, backup: BackupRecord) -> None:
    BackupRecord.objects.filter(pk=backup.pk).update(is_verified=False)
    assert "backup_missing" in cards(boss)


def test_an_installation_whose_backups_others_make_is_not_asked_for_one(
    boss: Browser, configured: Any
) -> None:
    BackupRecord.objects.all().delete()
    configured(backup_max_age_days=0)
    boss.force_login(User.objects.get(username="boss"))
    assert "backup_missing" not in cards(boss)


def test_the_row_of_a_process_that_is_gone_can_be_removed_and_then_it_is_not_missed(boss: Browser) -> None:
    record = gone()
    _, link = cards(boss)["process_gone"]
    page = boss.get(link).content.decode()
    assert "Gone" in page
    assert "host-a" in page
    removal = {"action": "delete_selected", "_selected_action": [record.pk], "post": "yes"}
    boss.post(link, removal)
    assert not ProcessRecord.objects.exists()
    assert cards(boss) == {}


def test_staff_see_the_problems_of_what_they_may_view(accounts: None, bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(is_staff=True)
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(bob)
    gone()
    BackupRecord.objects.all().delete()
    assert cards(browser) == {}
    assert WELL not in browser.get(PAGE).content.decode()
    bob.user_permissions.add(Permission.objects.get(codename="view_backuprecord"))
    assert cards(browser).keys() == {"backup_missing"}


def test_backups_are_listed_with_their_size_and_verification(boss: Browser, backup: BackupRecord) -> None:
    BackupRecord.objects.filter(pk=backup.pk).update(size=3_000_000, is_verified=True)
    page = boss.get("/admin/sessions_app/backuprecord/").content.decode()
    assert all(words in page for words in ("/backups/one", "2.9 MB", "Whole", "complete"))
