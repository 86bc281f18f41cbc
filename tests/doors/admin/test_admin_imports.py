"""Imports in the admin: all of them, with their reports; uploaded for others by whom may; cancelled."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from sessions_app.models import ImportRun, ImportState

pytestmark = pytest.mark.one_engine

IMPORTS = "/admin/sessions_app/importrun/"
TOTALS = {
    "records": {"found": 7, "stored": 5, "shared": 0, "skipped": {"it says <nothing>": 2}, "refused": {}},
    "events": {"added": 5, "already_here": 1, "masked": 0},
    "kept_as_they_were": {},
    "noted": {},
}


def log_in(user: User) -> Browser:
    browser = Browser()
    browser.force_login(user)
    return browser


@pytest.fixture
def boss(accounts: None, database: None) -> Browser:
    """A superuser's browser."""
    return log_in(User.objects.create_superuser("boss"))


def staff(*permissions: str) -> Browser:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return log_in(user)


def text_of(answer: Any) -> str:
    """Return what a page says, with tags and references undone."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())))


def made(user: User, **columns: Any) -> ImportRun:
    return ImportRun.objects.create(user=user, **{"file_name": "chatgpt.zip", "size": 9, **columns})


def test_the_list_shows_whose_imports_there_are_and_how_far(boss: Browser, alice: User, bob: User) -> None:
    made(alice, state=ImportState.DONE, conversations=12, failed=3)
    made(bob, file_name="mine.zip")
    shown = text_of(boss.get(IMPORTS))
    for each in ("chatgpt.zip", "local", "Finished, with problems", "12, 3 failed", "mine.zip", "bob"):
        assert each in shown
    assert "mine.zip" not in text_of(boss.get(f"{IMPORTS}?state=done"))


def test_the_page_of_an_import_has_its_report(boss: Browser, alice: User) -> None:
    run = made(alice, state=ImportState.FAILED, problem="It broke <off>.", conversations=1, totals=TOTALS)
    answer = boss.get(f"{IMPORTS}{run.pk}/change/")
    shown = text_of(answer)
    for each in ("It broke <off>.", "Records in the file: 7", "Skipped: it says <nothing>: 2", "Failed"):
        assert each in shown
    assert "<nothing>" not in answer.content.decode()
    assert boss.post(f"{IMPORTS}{run.pk}/change/", {"state": "done"}).status_code == 403


def test_the_list_asks_as_much_of_the_database_however_long_it_is(
    boss: Browser, alice: User, bob: User
) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert boss.get(IMPORTS).status_code == 200
        return len(captured)

    made(alice)
    asked()
    few = asked()
    for _ in range(10):
        made(bob, by=alice)
    assert asked() == few


def test_only_staff_who_may_add_imports_are_offered_to_upload(accounts: None, alice: User) -> None:
    may_view = staff("view_importrun")
    assert may_view.get(IMPORTS).status_code == 200
    assert may_view.get(f"{IMPORTS}add/").status_code == 403
    User.objects.get(username="staff").user_permissions.add(Permission.objects.get(codename="add_importrun"))
    may_add = log_in(User.objects.get(username="staff"))
    assert 'id="import-form"' in may_add.get(f"{IMPORTS}add/").content.decode()


@pytest.mark.parametrize(
    ("permissions", "state"),
    [(("view_importrun", "change_importrun"), "cancelled"), (("view_importrun",), "waiting")],
)
def test_staff_who_may_change_imports_cancel_them(
    accounts: None, alice: User, permissions: tuple[str, ...], state: str
) -> None:
    run = made(alice, state=ImportState.WAITING, received=9)
    done = made(alice, state=ImportState.DONE)
    body = {"action": "cancel", "_selected_action": [str(run.pk), str(done.pk)], "index": "0"}
    staff(*permissions).post(IMPORTS, body)
    run.refresh_from_db()
    assert run.state == state
    assert ImportRun.objects.filter(pk=done.pk).exists()
