"""Purges in the admin: who may ask for them, what they are shown first, and the record that stays."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.utils import timezone

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Purge
from conversations.store import creation, deletion
from sessions_app.models import RetentionPolicy
from tests.doors.admin.test_admin import LIST, Staff, of, staff, text_of  # noqa: F401
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

PURGE = LIST + "purge/"
PURGES = "/admin/conversations/purge/"
POLICIES = "/admin/sessions_app/retentionpolicy/"


@pytest.fixture
def gone(alice: User) -> ConversationRef:
    """A deleted conversation of alice's with two events."""
    conversation = creation.create(alice, conversation_id="gone", title="Holiday plans")
    writes.append(conversation, [event(), event()])
    deletion.soft_delete(conversation)
    return conversation


@pytest.fixture
def purger(staff: Staff) -> Browser:  # noqa: F811
    """A member of staff who may look at conversations and purge them."""
    return staff("conversations.view_conversation", "conversations.add_purge", "conversations.view_purge")


def test_a_purge_is_asked_for_by_name_and_then_begun(purger: Browser, gone: ConversationRef) -> None:
    assert f'href="{PURGE}?pk={gone.pk}"' in purger.get(of(gone)).content.decode()
    question = text_of(purger.get(PURGE, {"pk": gone.pk}))
    assert "Purge 1 conversation?" in question
    assert "Holiday plans" in question
    assert "2 events" in question
    answer = purger.post(PURGE, {"pk": [gone.pk]}, follow=True)
    assert "Purging 1 conversation." in text_of(answer)
    record = Purge.objects.get()
    assert (record.conversation_id, record.reason) == (gone.pk, "by staff")
    assert "Holiday plans" not in text_of(purger.get(of(gone)))
    assert "gone" in text_of(purger.get(PURGES))
    assert purger.get(f"{PURGES}{record.pk}/change/").status_code == 200


def test_chosen_rows_of_the_list_lead_to_the_question(purger: Browser, gone: ConversationRef) -> None:
    form = {"action": "purge", "_selected_action": [str(gone.pk)], "index": "0"}
    answer = purger.post(LIST, form)
    assert answer["Location"] == f"{PURGE}?pk={gone.pk}"
    assert not Purge.objects.exists()


def test_without_the_permission_nothing_is_purged(staff: Staff, gone: ConversationRef) -> None:  # noqa: F811
    browser = staff("conversations.view_conversation", "conversations.change_conversation")
    assert browser.get(PURGE, {"pk": gone.pk}).status_code == 403
    assert browser.post(PURGE, {"pk": gone.pk}).status_code == 403
    assert PURGE not in browser.get(of(gone)).content.decode()
    assert not Purge.objects.exists()


def test_what_is_no_deleted_conversation_is_refused_in_words(
    purger: Browser, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    for pk in ["", "x", "-1", "9" * 30, "0"]:
        with subtests.test(pk=pk):
            for wanted in (pk, str(conversation.pk)):
                answer = purger.post(PURGE, {"pk": wanted}, follow=True)
                assert "There is no such deleted conversation." in text_of(answer)
            assert Conversation.objects.active().exists()


def test_a_policy_shows_what_it_would_delete(staff: Staff, alice: User) -> None:  # noqa: F811
    browser = staff(*(f"sessions_app.{verb}_retentionpolicy" for verb in ("add", "change", "view")))
    conversation = creation.create(alice, conversation_id="quiet")
    moment = timezone.now() - timedelta(days=99)
    Conversation.objects.filter(pk=conversation.pk).update(updated_at=moment, listed_at=moment)
    form = {"name": "old ones", "older_than_days": "90", "label": "", "owner": ""}
    assert browser.post(POLICIES + "add/", form).status_code == 302
    policy = RetentionPolicy.objects.get()
    assert not policy.is_enabled
    page = text_of(browser.get(f"{POLICIES}{policy.pk}/change/"))
    assert "quiet" in page
    assert "Can be restored for 30 days, then purged" in page
    refused = text_of(browser.post(POLICIES + "add/", {**form, "name": "x", "older_than_days": "0"}))
    assert "greater than or equal to 1" in refused
    assert Conversation.objects.active().exists()
