"""What the web frontend asks by REST of a V1 conversation, call by call, and what it insists on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.utils import timezone

from conversations.log import reads
from conversations.models import Conversation
from sessions_app import astore
from sessions_app.live.status import iso
from sessions_app.storage import attachments
from tests.support.people.scripted_agent import until_true
from tests.support.wires.app_face import CONVERSATIONS, EVENTS, SANDBOXES, STARTS, answered, said
from tests.support.wires.v0 import CONVERSATIONS as INFOS
from tests.support.wires.v0 import NEW_ID


@pytest.fixture
def page(rest: httpx.AsyncClient) -> httpx.AsyncClient:
    """What a page of the same origin sends: no cookie and no key, and where it comes from."""
    rest.headers["origin"] = "http://localhost"
    return rest


async def posted(page: httpx.AsyncClient, path: str, body: Any) -> Any:
    """Return the body of an answer that is a success."""
    answer = await page.post(path, json=body)
    assert answer.is_success, (path, answer.text)
    return answer.json()


async def created(page: httpx.AsyncClient, **body: Any) -> str:
    """Press "New conversation" and wait as the page does; return the conversation's id."""
    start = await posted(page, CONVERSATIONS, {"parent_conversation_id": None, **body})

    async def polled() -> str | None:
        (found,) = await answered(page, STARTS, ids=start["id"])
        assert found["status"] not in ("ERROR", None)
        conversation_id: str | None = found["app_conversation_id"]
        return conversation_id if found["status"] == "READY" else None

    conversation_id = await until_true(polled)
    assert conversation_id is not None
    return conversation_id


async def info(page: httpx.AsyncClient, conversation_id: str) -> dict[str, Any]:
    found: dict[str, Any] = await answered(page, f"{INFOS}/{conversation_id}")
    return found


async def sandbox_of(page: httpx.AsyncClient, conversation_id: str) -> str:
    """Return what the page looks up before it stops or resumes."""
    (found,) = await answered(page, CONVERSATIONS, ids=conversation_id)
    sandbox_id: str = found["sandbox_id"]
    return sandbox_id


async def test_a_new_conversation_can_be_opened_and_its_socket_is_on_this_origin(
    page: httpx.AsyncClient,
) -> None:
    conversation_id = await created(page)
    found = await info(page, conversation_id)
    assert conversation_id == found["conversation_id"] == NEW_ID
    assert (found["conversation_version"], found["status"]) == ("V1", "RUNNING")
    assert found["url"] == f"http://localhost{INFOS}/{conversation_id}"
    assert found["session_api_key"] is None
    assert found["title"]


async def test_the_count_that_an_opened_page_asks_for_is_a_bare_number_of_stored_events(
    page: httpx.AsyncClient,
) -> None:
    conversation_id = await created(page, initial_message=said("hello"))
    count = await answered(page, f"{EVENTS}/count", conversation_id__eq=conversation_id)
    row = await astore.call(Conversation.objects.get, public_id=conversation_id)
    assert 0 < count <= len(await astore.call(reads.read_after, row.ref, -1))


async def test_the_side_tabs_find_the_sandbox(page: httpx.AsyncClient) -> None:
    conversation_id = await created(page)
    config = await answered(page, f"{INFOS}/{conversation_id}/config")
    (conversation,) = await answered(page, CONVERSATIONS, ids=conversation_id)
    (sandbox,) = await answered(page, SANDBOXES, id=config["runtime_id"])
    assert config["runtime_id"] == conversation["sandbox_id"] == sandbox["id"]
    assert conversation["conversation_url"] is not None
    assert sandbox["status"] == "RUNNING"


async def test_the_panel_lists_the_conversation_as_a_whole_info_and_its_start(
    page: httpx.AsyncClient,
) -> None:
    conversation_id = await created(page)
    (item,) = (await answered(page, INFOS, limit=20))["results"]
    assert item == await info(page, conversation_id)
    since = iso(timezone.now() - timedelta(minutes=20))
    starts = await answered(page, f"{STARTS}/search", limit=10, created_at__gte=since)
    assert [each["app_conversation_id"] for each in starts["items"]] == [conversation_id]


async def test_a_conversation_is_stopped_and_opened_again(page: httpx.AsyncClient) -> None:
    conversation_id = await created(page)
    sandbox_id = await sandbox_of(page, conversation_id)
    await posted(page, f"{SANDBOXES}/{sandbox_id}/pause", {})
    assert (await info(page, conversation_id))["status"] == "STOPPED"
    assert await sandbox_of(page, conversation_id) == sandbox_id
    await posted(page, f"{SANDBOXES}/{sandbox_id}/resume", {})
    assert (await info(page, conversation_id))["status"] == "RUNNING"


async def test_a_stopped_conversation_keeps_its_address_so_that_its_history_can_be_read(
    page: httpx.AsyncClient,
) -> None:
    conversation_id = await created(page, initial_message=said("hello"))
    before = await info(page, conversation_id)
    await posted(page, f"{SANDBOXES}/{await sandbox_of(page, conversation_id)}/pause", {})
    assert (await info(page, conversation_id))["url"] == before["url"]
    assert await answered(page, f"{EVENTS}/count", conversation_id__eq=conversation_id) > 0


async def test_a_file_goes_to_the_conversation_whose_page_sends_it(page: httpx.AsyncClient) -> None:
    conversation_id = await created(page)
    page.headers["referer"] = f"http://localhost/conversations/{conversation_id}"
    files = {"file": ("notes.txt", b"bytes")}
    answer = await page.post("/api/file/upload/%2Fworkspace%2Fnotes.txt", files=files)
    assert answer.is_success, answer.text
    row = await astore.call(Conversation.objects.get, public_id=conversation_id)
    assert await astore.call(attachments.content_of, row.ref, "notes.txt") == b"bytes"


async def test_a_conversation_is_renamed_and_deleted(page: httpx.AsyncClient) -> None:
    conversation_id = await created(page)
    renamed = await page.patch(f"{INFOS}/{conversation_id}", json={"title": "New name"})
    assert (renamed.status_code, (await info(page, conversation_id))["title"]) == (200, "New name")
    deleted = await page.delete(f"{INFOS}/{conversation_id}")
    assert (deleted.status_code, (await answered(page, INFOS, limit=20))["results"]) == (200, [])
    assert await answered(page, CONVERSATIONS, ids=conversation_id) == [None]


async def test_a_planning_agent_is_found_as_its_parents_first_child(page: httpx.AsyncClient) -> None:
    parent = await created(page)
    plan = await created(page, parent_conversation_id=parent, agent_type="plan")
    assert (await info(page, parent))["sub_conversation_ids"] == [plan]
    listed = (await answered(page, INFOS, limit=20))["results"]
    assert [each["conversation_id"] for each in listed] == [parent]


async def test_a_start_that_fails_says_why_to_who_polls(page: httpx.AsyncClient) -> None:
    start = await posted(page, CONVERSATIONS, {"selected_repository": "owner/name"})
    (found,) = await answered(page, STARTS, ids=start["id"])
    assert (found["status"], bool(found["detail"])) == ("ERROR", True)
