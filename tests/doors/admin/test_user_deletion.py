"""Deleting a person in the admin: who may, what the page says first, and what becomes of the account."""

from __future__ import annotations

import asyncio
import io
import zipfile
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import Client as Browser

from conversations.log import writes
from conversations.models import Conversation
from conversations.store import creation
from sessions_app.models import UserDeletion
from sessions_app.retention import rounds
from tests.doors.admin.test_admin import Staff, staff, text_of  # noqa: F401
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

USERS = "/admin/auth/user/"
RIGHTS = ("auth.view_user", "auth.change_user", "conversations.add_purge")


@pytest.fixture
def bob(alice: User) -> User:
    """A user with one conversation, beside alice."""
    bob = User.objects.create_user("bob", "bob@example.org", "a password")
    writes.append(creation.create(bob, conversation_id="bobs", title="Holiday plans"), [event()])
    return bob


def test_a_person_is_deleted_once_the_name_is_typed(staff: Staff, bob: User) -> None:  # noqa: F811
    browser = staff(*RIGHTS)
    page = f"{USERS}{bob.pk}/delete-person/"
    assert f'href="{page}"' in browser.get(f"{USERS}{bob.pk}/change/").content.decode()
    asked = text_of(browser.get(page))
    assert "Delete bob and all that is theirs?" in asked
    assert "1 conversation with" in asked
    refused = browser.post(page, {"username": "alice"}, follow=True)
    assert "Type the user name exactly as it is shown." in text_of(refused)
    assert not UserDeletion.objects.exists()
    done = text_of(browser.post(page, {"username": "bob"}, follow=True))
    assert f"is called deleted-{bob.pk} now" in done
    assert "data is being removed" in done
    rounds.begin_due()
    rounds.finish_all()
    rounds.begin_due()
    assert "finished 2" in text_of(browser.get(f"{USERS}{bob.pk}/change/"))
    assert not Conversation.objects.filter(purged_at=None).exists()
    assert {entry.object_repr for entry in LogEntry.objects.all()} == {f"deleted-{bob.pk}"}


def test_the_action_of_the_list_leads_to_the_question(staff: Staff, bob: User, alice: User) -> None:  # noqa: F811
    browser = staff(*RIGHTS)
    form = {"action": "delete_person", "_selected_action": [str(bob.pk)], "index": "0"}
    assert browser.post(USERS, form)["Location"] == f"{USERS}{bob.pk}/delete-person/"
    both = {**form, "_selected_action": [str(bob.pk), str(alice.pk)]}
    assert "Select one user." in text_of(browser.post(USERS, both, follow=True))
    assert not UserDeletion.objects.exists()


def test_only_who_may_purge_and_change_the_account_deletes_it(
    staff: Staff,  # noqa: F811
    bob: User,
    subtests: pytest.Subtests,
) -> None:
    page = f"{USERS}{bob.pk}/delete-person/"
    for missing in RIGHTS[1:]:
        with subtests.test(missing):
            browser = staff(*(right for right in RIGHTS if right != missing))
            assert browser.get(page).status_code == 403
            assert browser.post(page, {"username": "bob"}).status_code == 403
            assert page not in browser.get(f"{USERS}{bob.pk}/change/").content.decode()
    root = User.objects.create_superuser("root", password="a password")
    browser = staff(*RIGHTS)
    assert browser.get(f"{USERS}{root.pk}/delete-person/").status_code == 403
    assert browser.get(f"{USERS}999/delete-person/").status_code == 404
    assert Browser().get(page).status_code == 302
    own = Browser()
    own.force_login(root)
    assert own.post(f"{USERS}{root.pk}/delete-person/", {"username": "root"}).status_code == 403
    assert not UserDeletion.objects.exists()


def test_the_conversations_are_exported_before_by_those_who_may_read(
    staff: Staff,  # noqa: F811
    bob: User,
    subtests: pytest.Subtests,
) -> None:
    address = f"{USERS}{bob.pk}/export/"
    for missing in ("conversations.view_event", "conversations.add_purge"):
        with subtests.test(missing):
            rights = {*RIGHTS, "conversations.view_event"} - {missing}
            assert staff(*rights).get(address).status_code == 403
    answer = staff(*RIGHTS, "conversations.view_event").get(address)
    assert isinstance(answer, StreamingHttpResponse)
    content = asyncio.run(_read(answer))
    assert ["bobs" in name for name in zipfile.ZipFile(io.BytesIO(content)).namelist()] == [True]
    assert LogEntry.objects.get().change_message == "Exported all conversations"


async def _read(answer: StreamingHttpResponse) -> bytes:
    pieces: Any = answer
    return b"".join([piece async for piece in pieces])
