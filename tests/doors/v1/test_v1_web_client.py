"""What the web frontend asks by REST of a V1 conversation, call by call, and what it insists on."""

from __future__ import annotations

from collections.abc import Iterable
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


SETTINGS_OF_1_5: dict[str, Any] = {
    "language": "en",
    "agent": "CodeActAgent",
    "max_iterations": None,
    "security_analyzer": None,
    "confirmation_mode": None,
    "llm_model": "openai/gpt-x",
    "llm_base_url": "http://127.0.0.1:9/v1",
    "remote_runtime_resource_factor": None,
    "secrets_store": {"provider_tokens": {}},
    "enable_default_condenser": True,
    "enable_sound_notifications": False,
    "enable_proactive_conversation_starters": True,
    "enable_solvability_analysis": True,
    "user_consents_to_analytics": True,
    "sandbox_base_container_image": None,
    "sandbox_runtime_container_image": None,
    "mcp_config": None,
    "search_api_key": "",
    "sandbox_api_key": None,
    "max_budget_per_task": None,
    "condenser_max_size": 240,
    "email": "",
    "email_verified": None,
    "git_user_name": "openhands",
    "git_user_email": "openhands@all-hands.dev",
    "v1_enabled": True,
    "provider_tokens_set": {},
    "llm_api_key_set": True,
    "search_api_key_set": False,
    "is_new_user": False,
}
"""What the form of consent posts that the frontend 1.5 shows first: all that it was given, and the answer."""
HOME_OF_1_5 = ("/api/v1/web-client/config", "/api/settings", "/api/conversations?limit=10")
SETTINGS_PAGE_OF_1_5 = (
    *("/api/v1/web-client/config", "/api/settings", "/api/options/models"),
    *("/api/options/agents", "/api/options/security-analyzers"),
)
V0_CHAT_OF_1_5 = ("", "/config", "/microagents", "/git/changes")


async def all_answered(page: httpx.AsyncClient, paths: Iterable[str]) -> None:
    for path in paths:
        answer = await page.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert answer.headers["content-type"].startswith("application/json"), path


async def test_the_pages_of_frontend_1_5_are_answered_all_that_they_ask(page: httpx.AsyncClient) -> None:
    model = {name: SETTINGS_OF_1_5[name] for name in ("llm_model", "llm_base_url")}
    await posted(page, "/api/settings", {**model, "llm_api_key": "none"})
    await all_answered(page, HOME_OF_1_5)
    await posted(page, "/api/settings", SETTINGS_OF_1_5)
    assert (await answered(page, "/api/settings"))["v1_enabled"] is True
    await all_answered(page, SETTINGS_PAGE_OF_1_5)


async def test_a_v1_chat_of_frontend_1_5_is_answered_all_that_it_asks(page: httpx.AsyncClient) -> None:
    conversation_id = await created(page)
    v0 = f"{INFOS}/{conversation_id}"
    await all_answered(
        page,
        (
            v0,
            f"/api/v1/conversation/{conversation_id}/events/search?limit=100",
            f"{v0}/events/count",
            f"{CONVERSATIONS}/{conversation_id}/skills",
            f"{v0}/config",
        ),
    )


async def test_a_v0_chat_of_frontend_1_5_is_answered_all_that_it_asks(page: httpx.AsyncClient) -> None:
    conversation_id = (await posted(page, INFOS, {}))["conversation_id"]
    paths = (f"{INFOS}/{conversation_id}{rest}" for rest in V0_CHAT_OF_1_5)
    await all_answered(page, (*paths, "/api/conversations?limit=10"))
