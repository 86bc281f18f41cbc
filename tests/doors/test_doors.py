"""Each door on every engine: its lists, one conversation, and what is searched for are found."""

from __future__ import annotations

import httpx
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client as Admin

from conversations.events import ConversationRef
from conversations.log import writes
from conversations.store import creation, deletion
from sessions_app.models import ImportRun
from tests.support.data.events import event
from tests.support.people.web_browser import Browser
from tests.support.wires.web_pages import IMPORT_ID, PAGES

READ = [page for page in PAGES if page.method == "GET"]
CONVERSATION = "0f53f8f1a0f84e0c8f6f6f4c6a3c1a11"
READ_BY_REST = [
    "/api/conversations?limit=20",
    f"/api/conversations/{CONVERSATION}",
    f"/api/conversations/{CONVERSATION}/events?start_id=0&limit=100",
    "/api/native/conversations?limit=20&title=talk",
    f"/api/native/conversations/{CONVERSATION}/events?after=-1&limit=100",
    "/api/native/search?q=hello",
    "/api/v1/app-conversations/search?title__contains=talk",
    "/api/v1/app-conversations/count",
    "/api/v1/events/search",
    "/api/v1/sandboxes/search",
]


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's with one event, which every door knows, a deleted one and an import."""
    conversation = creation.create(alice, conversation_id=CONVERSATION)
    writes.append(conversation, [event("hello")])
    deletion.soft_delete(creation.create(alice, conversation_id="gone"))
    ImportRun.objects.create(public_id=IMPORT_ID, user_id=alice.pk, file_name="a.zip", size=9)
    return conversation


async def test_every_page_is_shown(visitor: Browser, talk: ConversationRef) -> None:
    paths = {page.path.replace("/c/talk", f"/c/{CONVERSATION}"): page.owner for page in READ}
    assert {path: (await visitor.get(path)).status_code for path in paths} == paths


async def test_every_door_answers_by_rest(rest: httpx.AsyncClient, talk: ConversationRef) -> None:
    assert {path: (await rest.get(path)).status_code for path in READ_BY_REST} == dict.fromkeys(
        READ_BY_REST, 200
    )


def test_every_list_of_the_admin_is_shown(talk: ConversationRef) -> None:
    operator = Admin(headers={"host": "localhost"})
    lists = [
        f"/admin/{model._meta.app_label}/{model._meta.model_name}/?q=hello" for model in admin.site._registry
    ]
    paths = ["/admin/", f"/admin/conversations/conversation/{talk.pk}/change/", *lists]
    found = {path: operator.get(path, follow=True).status_code for path in paths}
    assert found == dict.fromkeys(paths, 200)
