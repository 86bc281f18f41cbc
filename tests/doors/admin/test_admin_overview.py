"""The admin's first page: what runs, hangs and failed, how the server is, and what looking costs."""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, GuardRepair
from conversations.store import creation
from convserver.admin import measures, overview
from sessions_app.models import (
    AgentLoop,
    Connection,
    Delivery,
    Endpoint,
    UnfinishedAnswer,
    Workspace,
)
from sessions_app.webhooks import deliveries, transport
from sessions_app.webhooks.transport import WebhookCredentials
from tests.conftest import once
from tests.support.data.events import event

PAGE = "/admin/"
ROOMY = psutil.disk_usage("/")._replace(total=10**12, used=0, free=10**12)
LONG_AGO = timedelta(minutes=9)
FAILED = "Agents whose last turn failed in the last 24 hours"
STUCK = "Agents whose last turn got stuck in the last 24 hours"


@pytest.fixture
def boss(accounts: None, database: None) -> Browser:
    """A superuser's browser."""
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(User.objects.create_superuser("boss"))
    return browser


def figures(browser: Browser) -> dict[str, str]:
    """Return the page's numbers by what they count."""
    page = browser.get(PAGE).content.decode()
    pairs = re.findall(r'class="admin-quiet">(.*?)</span>\s*<strong[^>]*>(.*?)</strong>', page)
    return {unescape(title): unescape(value) for title, value in pairs}


def link_of(browser: Browser, title: str) -> str:
    """Return where a number leads."""
    page = browser.get(PAGE).content.decode()
    found = re.search(rf'<a href="([^"]*)" class="admin-figure[^>]*>\s*<span[^>]*>{title}<', page)
    assert found is not None
    return unescape(found[1])


def listed(browser: Browser, path: str) -> int:
    """Return how many rows a list shows."""
    found = re.search(r"(\d+) shown", browser.get(path).content.decode())
    return int(found[1]) if found else 0


def make_loop(conversation: ConversationRef, *, since: timedelta = timedelta(), **columns: Any) -> None:
    """Make a conversation's loop, at which nothing has happened for so long; it plays a turn unless told."""
    before = timezone.now() - since
    values = {"status": "running", "execution_status": "running", "agent": "a", **columns}
    AgentLoop.objects.create(conversation_id=conversation.pk, **values)
    AgentLoop.objects.filter(pk=conversation.pk).update(updated_at=before)
    Conversation.objects.filter(pk=conversation.pk).update(updated_at=before)


def make_delivery(conversation: ConversationRef, **columns: Any) -> None:
    endpoint = Endpoint(name="all", base_url="https://example.org")
    transport.seal_into(endpoint, WebhookCredentials({}, ""))
    Delivery.objects.create(endpoint=deliveries.begin(endpoint), conversation_id=conversation.pk, **columns)


@pytest.mark.parametrize(
    ("title", "columns"),
    [
        ("Running turns", {}),
        ("No progress for a minute", {"since": LONG_AGO}),
        ("Agents that need approval", {"execution_status": "waiting_for_confirmation"}),
        (FAILED, {"status": "error", "execution_status": "idle"}),
        (FAILED, {"execution_status": "error"}),
        (STUCK, {"execution_status": "stuck"}),
    ],
)
def test_an_agent_is_counted_and_listed(
    boss: Browser, conversation: ConversationRef, title: str, columns: dict[str, Any]
) -> None:
    assert figures(boss)[title] == "0"
    make_loop(conversation, **columns)
    assert figures(boss)[title] == "1"
    assert listed(boss, link_of(boss, title)) == 1


@pytest.mark.parametrize("status", ["error", "stuck"])
def test_what_failed_longer_ago_is_not_counted(
    boss: Browser, conversation: ConversationRef, status: str
) -> None:
    make_loop(conversation, execution_status=status, since=timedelta(hours=25))
    shown = figures(boss)
    assert {shown[FAILED], shown[STUCK]} == {"0"}


@pytest.mark.parametrize("status", ["error", "stuck"])
def test_a_loop_that_is_closed_long_after_its_turn_failed_is_not_counted(
    boss: Browser, conversation: ConversationRef, status: str
) -> None:
    make_loop(conversation, execution_status=status, since=timedelta(hours=25))
    AgentLoop.objects.update(status="stopped", updated_at=timezone.now())
    shown = figures(boss)
    assert {shown[FAILED], shown[STUCK]} == {"0"}


def test_a_turn_of_which_nothing_comes_stands_out_with_its_age(
    boss: Browser, conversation: ConversationRef
) -> None:
    make_loop(conversation, since=LONG_AGO, owner_pid=4242, owner_host="web-1 boot")
    row = re.search(r'<tr class="admin-bad">(.*?)</tr>', boss.get(PAGE).content.decode(), re.DOTALL)
    assert row is not None
    words = " ".join(re.sub("<[^>]+>", " ", row[1]).split())
    assert re.fullmatch(r".+ local 9 min \d s 9 min \d s ago: no progress 4242 on web-1", words)


@pytest.mark.parametrize("progress", ["stored", "streamed"])
def test_a_turn_that_goes_on_does_not_stand_out(
    boss: Browser, conversation: ConversationRef, progress: str
) -> None:
    make_loop(conversation, since=LONG_AGO)
    if progress == "stored":
        writes.append(conversation, [event("one")])
    else:
        UnfinishedAnswer.objects.create(
            conversation_id=conversation.pk, turn_id="t", event_id="e", through=0, text="so far"
        )
    assert figures(boss)["No progress for a minute"] == "0"
    assert 'class="admin-bad"' not in boss.get(PAGE).content.decode()


def test_events_of_the_last_minute_are_counted(
    boss: Browser, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes.append(conversation, [event(str(number)) for number in range(5)])
    assert figures(boss)["Events per minute"] == "5"
    monkeypatch.setattr(overview, "COUNTED_MAX", 3)
    assert figures(boss)["Events per minute"].startswith("about ")


def test_connections_are_counted_and_more_than_can_be_counted_is_said(
    boss: Browser, alice: User, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        Connection.objects.create(conversation_id=conversation.pk, user=alice, door="native")
    assert figures(boss)["Open connections"] == "3"
    assert listed(boss, link_of(boss, "Open connections")) == 3
    monkeypatch.setattr(overview, "COUNTED_MAX", 2)
    assert figures(boss)["Open connections"] == "more than 2"


def test_the_lag_of_webhooks_is_that_of_the_oldest_that_waits(
    boss: Browser, conversation: ConversationRef
) -> None:
    assert figures(boss)["Webhook lag"] == "No pending deliveries"
    now = timezone.now()
    make_delivery(conversation, since=now - timedelta(hours=3), due_at=now, tries=2)
    shown = figures(boss)
    assert (shown["Webhook lag"], shown["Failing deliveries"]) == ("3 h 0 min", "1")
    assert (
        listed(boss, link_of(boss, "Webhook lag")) == listed(boss, link_of(boss, "Failing deliveries")) == 1
    )


def test_the_server_is_measured(boss: Browser) -> None:
    shown = figures(boss)
    assert shown["Database answers in"].endswith(" ms")
    assert re.fullmatch(r"[\d.]+ [KM]B", shown["Database size"])
    assert re.fullmatch(r"[\d.]+ [MGT]B of [\d.]+ [MGT]B", shown["Free on the data disk"])
    hints = shown["Redis delivery time"]
    assert hints.endswith(" ms") if settings.CONFIGURATION.redis_url else hints == "Redis is not used"


def test_a_lack_of_room_for_files_of_conversations_is_marked(
    boss: Browser, configured: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(workspaces=tmp_path / "mounted/workspaces")  # not made yet
    (tmp_path / "mounted").mkdir()
    for free, total, is_marked in ((0.9, 5, True), (90, 1_000, True), (110, 1_000, False), (1.1, 5, False)):
        found = ROOMY._replace(total=int(total * 10**9), free=int(free * 10**9))
        usages = {str(tmp_path / "mounted"): found}
        monkeypatch.setattr(psutil, "disk_usage", lambda path, usages=usages: usages.get(path, ROOMY))
        page = boss.get(PAGE).content.decode()
        classes = r'class="(admin-figure[^"]*)"[^<]*<span[^>]*>Free for files of conversations<'
        (shown,) = re.findall(classes, page)
        assert ("admin-bad" in shown) is is_marked, (free, total)


def test_the_files_of_conversations_are_counted(boss: Browser, alice: User) -> None:
    assert figures(boss)["Files of conversations"] == "0 bytes in 0 workspaces"
    for _ in range(2):
        Workspace.objects.create(conversation_id=creation.create(alice).pk, bytes=2_048, files=1)
    assert figures(boss)["Files of conversations"] == "4 KB in 2 workspaces"


@pytest.fixture
def hanging_redis(configured: Callable[..., None]) -> Iterator[None]:
    """A Redis that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        configured(redis_url=f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        yield


@once
def test_a_redis_that_hangs_does_not_hang_the_page(boss: Browser, hanging_redis: None) -> None:
    assert figures(boss)["Redis delivery time"] == "No answer"


@once
def test_a_redis_that_is_gone_is_no_answer(boss: Browser, configured: Callable[..., None]) -> None:
    configured(redis_url="redis://127.0.0.1:1/0")
    assert measures.hints_ms() is None


def test_guards_that_were_put_back_lately_are_told(boss: Browser) -> None:
    repair = {"guards": "event_refuse_delete", "host": "web-1", "pid": 7}
    GuardRepair.objects.create(**repair, repaired_at=timezone.now() - timedelta(days=31))
    assert "Guards repaired" not in figures(boss)
    GuardRepair.objects.create(**repair, repaired_at=timezone.now() - timedelta(days=2, hours=3, minutes=1))
    assert figures(boss)["Guards repaired"] == "2 d 3 h ago: event_refuse_delete"


def test_a_library_that_can_lose_a_commit_is_named(boss: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.53.0")
    title = "SQLite, which can lose a commit before 3.51.3"
    assert title not in figures(boss)
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.46.1")
    assert figures(boss).get(title) == ("3.46.1" if connection.vendor == "sqlite" else None)


@once
def test_staff_see_the_figures_of_what_they_may_view(accounts: None, database: None) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_connection"))
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(user)
    assert figures(browser).keys() == {"Open connections"}


def test_the_page_asks_as_much_of_the_database_whatever_there_is(boss: Browser, alice: User) -> None:
    boss.get(PAGE)
    before = statements(boss)
    for number in range(30):
        conversation = creation.create(alice, conversation_id=f"talk-{number}")
        make_loop(conversation, since=LONG_AGO)
        writes.append(conversation, [event("one")])
    assert statements(boss) == before <= 34


def statements(browser: Browser) -> int:
    with CaptureQueriesContext(connection) as captured:
        browser.get(PAGE)
    return len(captured)
