"""Drafts: one for all devices of a user, never replaced unseen."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.live import drafts
from sessions_app.live.drafts import DraftConflict, Edit
from sessions_app.live.status import iso
from sessions_app.models import DraftQuerySet
from tests.conftest import Dial
from tests.doors.native.test_list_socket import no_hints, quick_poll

__all__ = ["no_hints", "quick_poll"]

IN_TALK = "/api/native/conversations/talk/draft"
NEW = "/api/native/draft"
IMAGE = "data:image/png;base64,iVBORw0KGgo="

both = pytest.mark.parametrize("path", [IN_TALK, NEW])


def body(text: str = "hel", *, version: int, **members: Any) -> dict[str, Any]:
    return {"text": text, "images": [], "version": version, **members}


@both
async def test_without_a_draft_there_is_an_empty_one_of_version_0(
    conversation: ConversationRef, rest: httpx.AsyncClient, path: str
) -> None:
    assert (await rest.get(path)).json() == {
        "text": "",
        "images": [],
        "files": [],
        "version": 0,
        "updated_at": None,
    }


@both
async def test_a_draft_is_kept_as_it_was_written(
    conversation: ConversationRef, rest: httpx.AsyncClient, path: str
) -> None:
    written = await rest.put(path, json=body("  two\nlines ", version=0, images=[IMAGE]))
    assert (written.status_code, written.json()["version"]) == (200, 1)
    stored = (await rest.get(path)).json()
    assert stored == written.json()
    assert (stored["text"], stored["images"]) == ("  two\nlines ", [IMAGE])


@pytest.mark.no_second_try
@both
@pytest.mark.parametrize("version", [0, 1, 3])
async def test_a_draft_that_was_written_elsewhere_meanwhile_is_not_replaced(
    conversation: ConversationRef, rest: httpx.AsyncClient, path: str, version: int
) -> None:
    await rest.put(path, json=body("first", version=0))
    stored = (await rest.put(path, json=body("second", version=1))).json()
    refused = await rest.put(path, json=body("other", version=version))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert refused.json()["draft"] == stored == (await rest.get(path)).json()


async def test_a_version_of_a_draft_that_never_was_is_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    refused = await rest.put(IN_TALK, json=body(version=5))
    assert (refused.status_code, refused.json()["draft"]["version"]) == (409, 0)


@pytest.mark.no_second_try
def test_of_two_devices_that_write_at_the_same_time_one_is_told(
    conversation: ConversationRef, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts.write(alice.pk, conversation, Edit(text="first", images=[], version=0))
    update = DraftQuerySet.update

    def update_late(rows: DraftQuerySet, **columns: Any) -> int:
        monkeypatch.setattr(DraftQuerySet, "update", update)
        drafts.write(alice.pk, conversation, Edit(text="laptop", images=[], version=1))
        return rows.update(**columns)

    monkeypatch.setattr(DraftQuerySet, "update", update_late)
    with pytest.raises(DraftConflict):
        drafts.write(alice.pk, conversation, Edit(text="phone", images=[], version=1))


@both
async def test_a_sent_draft_is_an_empty_one_of_the_next_version(
    conversation: ConversationRef, rest: httpx.AsyncClient, path: str
) -> None:
    await rest.put(path, json=body(version=0))
    sent = (await rest.put(path, json=body("", version=1))).json()
    assert (sent["text"], sent["version"]) == ("", 2)


async def test_drafts_stand_apart(conversation: ConversationRef, bob: User, rest: httpx.AsyncClient) -> None:
    await rest.put(IN_TALK, json=body("in talk", version=0))
    await rest.put(NEW, json=body("new", version=0))
    await astore.call(drafts.write, bob.pk, None, Edit(text="bob's", images=[], version=0))
    assert [(await rest.get(path)).json()["text"] for path in (IN_TALK, NEW)] == ["in talk", "new"]


NO_DRAFTS: list[dict[str, Any]] = [
    {},
    {"version": -1},
    {"version": 2**63},
    {"version": None},
    {"text": None},
    {"text": "ä" * (drafts.TEXT_MAX_BYTES // 2 + 1)},
    {"text": "null\0"},
    {"text": "half \ud800"},
    {"images": IMAGE},
    {"images": [1]},
    {"images": ["https://elsewhere.example/a.png"]},
    {"images": ["data:text/html;base64,PGI+"]},
    {"images": [IMAGE] * 101},
    {"images": [f"data:image/png;base64,{'A' * drafts.IMAGES_MAX_BYTES}"]},
]


@pytest.mark.one_engine
async def test_what_is_no_draft_is_refused_and_nothing_stored(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for wrong in NO_DRAFTS:
        with subtests.test(f"{wrong}"[:40]):
            sent = json.dumps({"text": "", "version": 0, **wrong} if wrong else {})
            answer = await rest.put(NEW, content=sent, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
            assert (await rest.get(NEW)).json()["version"] == 0


async def test_a_written_draft_is_told_to_the_users_lists(
    conversation: ConversationRef, dial: Dial, rest: httpx.AsyncClient
) -> None:
    client = await dial("/ws/conversations")
    await client.until("hello")
    for path, version in ((IN_TALK, 0), (IN_TALK, 1), (NEW, 0)):
        await rest.put(path, json=body(version=version))
    told = [await client.until("draft") for _ in range(3)]
    assert [(each["conversation"], each["version"]) for each in told] == [("talk", 1), ("talk", 2), (None, 1)]


async def test_a_list_that_comes_back_is_told_what_was_written_meanwhile(
    conversation: ConversationRef, dial: Dial, rest: httpx.AsyncClient
) -> None:
    now = timezone.now()
    await rest.put(IN_TALK, json=body(version=0))
    client = await dial("/ws/conversations", query={"since": iso(now)})
    assert (await client.until("draft"))["version"] == 1


async def test_a_lost_hint_of_a_draft_costs_one_poll(
    quick_poll: None, no_hints: None, conversation: ConversationRef, dial: Dial, rest: httpx.AsyncClient
) -> None:
    client = await dial("/ws/conversations")
    await client.until("hello")
    await rest.put(NEW, json=body(version=0))
    assert (await client.until("draft"))["conversation"] is None
