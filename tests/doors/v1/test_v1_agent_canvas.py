"""What OpenHands' agent canvas asks of its local back end, call by call, and what it insists on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from convserver import WIRE_VERSION
from sessions_app.agents.llm import library
from sessions_app.agents.llm.models import Wire
from sessions_app.agents.sources import BUILT_IN_AGENTS
from tests.conftest import Dial
from tests.support.people.scripted_agent import until_true
from tests.support.servers.model_server import Answer, Asked, completion, model_server

CONVERSATIONS = "/api/conversations"
SETTINGS = "/api/settings"
MODEL = "openai/gpt-x"
KEY = "sk-typed-into-the-form"
MASKED = "**********"
SKILL = {"name": "notes", "content": "Keep notes.", "trigger": {"type": "keyword", "keywords": ["notes"]}}


@pytest.fixture
def canvas(rest: httpx.AsyncClient) -> httpx.AsyncClient:
    """What the page sends with each request, also without a body: its content type and its key."""
    rest.headers.update(
        {
            "accept": "*/*",
            "content-type": "application/json",
            "sec-fetch-mode": "cors",
            "x-session-api-key": "local",
        }
    )
    return rest


@pytest.fixture
async def model(configured: Callable[..., None]) -> AsyncIterator[tuple[str, list[Asked]]]:
    """A server of models, and what it is asked; without a model the demo agent answers."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    await library.client_of(Wire.OPENAI)  # which takes seconds, and is not what a test waits for

    def answers(asked: Asked) -> Answer:
        return completion(["Hello ", "there"])

    with model_server(answers) as (url, asked):
        yield url, asked


async def got(canvas: httpx.AsyncClient, path: str) -> Any:
    """Return the body of an answer that is a 200."""
    answer = await canvas.get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


async def sent(canvas: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    """Return the body of an answer that is a success, parsed if its type says that it is JSON."""
    answer = await canvas.request(method, path, **({} if body is None else {"json": body}))
    assert answer.is_success, (path, answer.text)
    return answer.json() if "json" in answer.headers.get("content-type", "") else None


async def set_up(canvas: httpx.AsyncClient, url: str) -> None:
    """Fill in the form of the first run: a model with its key, as a profile, and an agent that has it."""
    llm = {"model": MODEL, "api_key": KEY, "base_url": url}
    await sent(canvas, "PATCH", SETTINGS, {"agent_settings_diff": {"llm": llm}})
    await sent(canvas, "POST", "/api/profiles/gpt-x", {"llm": llm, "include_secrets": True})
    await sent(canvas, "POST", "/api/profiles/gpt-x/activate", {})
    agent = {"agent_kind": "openhands", "llm_profile_ref": "gpt-x"}
    await sent(canvas, "POST", "/api/agent-profiles/default", agent)
    (profile,) = (await got(canvas, "/api/agent-profiles"))["profiles"]
    await sent(canvas, "POST", f"/api/agent-profiles/{profile['id']}/activate", {})


async def started(canvas: httpx.AsyncClient, text: str) -> str:
    """Send the first message: the page starts with the settings that it was shown; return the id."""
    settings = (await canvas.get(SETTINGS, headers={"x-expose-secrets": "encrypted"})).json()
    agent = settings["agent_settings"]
    body = {
        "agent_settings": {
            **agent,
            "llm": {**agent["llm"], "stream": True},
            "agent_context": {"skills": [SKILL], "load_public_skills": False},
            "tools": [{"name": name, "params": {}} for name in ("terminal", "file_editor")],
        },
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/workspace/project/x"},
        "client_tools": [],
        "confirmation_policy": {"kind": "NeverConfirm"},
        "max_iterations": 500,
        "stuck_detection": True,
        "autotitle": True,
        "worktree": True,
        "secrets_encrypted": True,
        "conversation_id": str(uuid4()),
        "tags": {"clientsource": "agentcanvas"},
        "initial_message": {"role": "user", "content": [{"type": "text", "text": text}], "run": True},
    }
    info = await sent(canvas, "POST", CONVERSATIONS, body)
    assert info["id"] == body["conversation_id"]
    return str(info["id"])


async def finished(canvas: httpx.AsyncClient, conversation_id: str) -> dict[str, Any]:
    """Wait until the agent has answered; return the conversation."""

    async def polled() -> dict[str, Any]:
        found: dict[str, Any] = await got(canvas, f"{CONVERSATIONS}/{conversation_id}")
        return found if found["execution_status"] == "finished" else {}

    return await until_true(polled)


async def test_a_first_visit_finds_a_back_end_of_its_release(canvas: httpx.AsyncClient) -> None:
    settings = await got(canvas, SETTINGS)
    assert {"agent_settings", "conversation_settings", "misc_settings"} <= settings.keys()
    assert settings["llm_api_key_is_set"] is False
    info = await got(canvas, "/server_info")
    assert tuple(map(int, info["version"].split("."))) >= (1, 28, 0)
    assert (info["version"], info["usable_tools"]) == (WIRE_VERSION, [])
    assert {each["key"] for each in (await got(canvas, f"{SETTINGS}/agent-schema"))["sections"]} >= {"llm"}
    assert (await got(canvas, f"{SETTINGS}/conversation-schema"))["sections"]
    assert "openai" in (await got(canvas, "/api/llm/providers"))["providers"]
    assert (await got(canvas, "/api/llm/models/verified"))["models"]["openai"]


async def test_what_a_workspace_would_have_is_empty(
    canvas: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    looks: list[tuple[str, str, Any, str | None]] = [
        ("GET", "/api/file/home", None, None),
        ("GET", "/api/workspaces", None, "workspaces"),
        ("GET", "/api/plugins/installed", None, "plugins"),
        ("GET", "/api/canvas-extensions/installed", None, "canvas_extensions"),
        ("GET", "/api/settings/secrets", None, "secrets"),
        ("GET", "/api/profiles", None, "profiles"),
        ("POST", "/api/skills", {"load_user": True, "project_dir": "workspace/project"}, "skills"),
    ]
    for method, path, body, member in looks:
        with subtests.test(path=path):
            answer = await sent(canvas, method, path, body)
            assert member is None or answer[member] == []
    assert (await got(canvas, "/api/file/home"))["home"].startswith("/")
    assert await sent(canvas, "POST", "/api/hooks", {"project_dir": "/workspace"}) == {"hook_config": None}
    assert await got(canvas, "/api/llm/provider-connections") == []
    refused = await canvas.post("/api/bash/execute_bash_command", json={"command": "ls"})
    assert (refused.status_code, "No conversation of yours" in refused.json()["detail"]) == (404, True)


async def test_an_answer_without_a_body_names_no_type_that_a_page_would_parse(
    canvas: httpx.AsyncClient,
) -> None:
    for method in ("POST", "DELETE"):
        answer = await canvas.request(method, "/api/auth/workspace-session")
        assert (answer.status_code, answer.content, answer.headers.get("content-type")) == (204, b"", None)


async def test_a_model_is_set_up_and_answers_with_the_key_that_the_page_never_sees(
    canvas: httpx.AsyncClient, model: tuple[str, list[Asked]]
) -> None:
    url, asked = model
    await set_up(canvas, url)
    settings = (await canvas.get(SETTINGS, headers={"x-expose-secrets": "plaintext"})).json()
    assert settings["agent_settings"]["llm"] == {"model": MODEL, "api_key": MASKED, "base_url": url}
    assert settings["active_profile"] == "gpt-x"
    conversation_id = await started(canvas, "Say hello")
    info = await finished(canvas, conversation_id)
    assert (info["agent"]["llm"]["model"], info["agent"]["llm"]["api_key"]) == (MODEL, MASKED)
    chats = [each for each in asked if each.path.endswith("/chat/completions")]
    assert {each.key for each in chats} == {f"Bearer {KEY}"}
    events = f"{CONVERSATIONS}/{conversation_id}/events/search?limit=50&sort_order=TIMESTAMP_DESC"
    texts = [
        part["text"]
        for event in (await got(canvas, events))["items"]
        if event["kind"] == "MessageEvent"
        for part in event["llm_message"]["content"]
    ]
    assert texts == ["Hello there", "Say hello"]


async def test_the_panel_lists_renames_and_deletes(canvas: httpx.AsyncClient) -> None:
    first, second = [await started(canvas, text) for text in ("One", "Two")]
    newest = f"{CONVERSATIONS}/search?limit=20&sort_order=UPDATED_AT_DESC"
    assert {each["id"] for each in (await got(canvas, newest))["items"]} == {first, second}
    await sent(canvas, "PATCH", f"{CONVERSATIONS}/{first}", {"title": "A renamed talk"})
    await sent(canvas, "PATCH", f"{CONVERSATIONS}/{first}", {"tags": {"origin": "test"}})
    (shown,) = await got(canvas, f"{CONVERSATIONS}?ids={first}")
    assert (shown["title"], shown["tags"]) == ("A renamed talk", {"origin": "test"})
    await sent(canvas, "DELETE", f"{CONVERSATIONS}/{second}")
    assert [each["id"] for each in (await got(canvas, newest))["items"]] == [first]


async def test_a_message_is_sent_by_socket_or_by_rest_and_a_run_is_stopped(
    canvas: httpx.AsyncClient, dial: Dial
) -> None:
    conversation_id = await started(canvas, "Hello")
    await finished(canvas, conversation_id)
    socket = await dial(f"/sockets/events/{conversation_id}?resend_mode=since&after_timestamp=2026-01-01")
    by_socket = {"role": "user", "content": [{"type": "text", "text": "by socket"}]}
    await socket.send(by_socket)
    message = {"role": "user", "content": [{"type": "text", "text": "by rest"}]}
    answer = await sent(canvas, "POST", f"{CONVERSATIONS}/{conversation_id}/events", {**message, "run": True})
    assert answer == {"success": True}

    async def counted() -> bool:
        count: int = await got(canvas, f"{CONVERSATIONS}/{conversation_id}/events/count?source=user")
        return count == 3

    await until_true(counted)
    assert (await canvas.post(f"{CONVERSATIONS}/{conversation_id}/interrupt", json={})).is_success


async def test_a_profile_is_put_into_a_conversation_with_its_stored_key(
    canvas: httpx.AsyncClient, model: tuple[str, list[Asked]]
) -> None:
    url, asked = model
    conversation_id = await started(canvas, "Hello")
    await finished(canvas, conversation_id)
    llm = {"model": "openai/other", "api_key": "key of the profile", "base_url": url}
    await sent(canvas, "POST", "/api/profiles/other", {"llm": llm, "include_secrets": True})
    shown = (await canvas.get("/api/profiles/other", headers={"x-expose-secrets": "encrypted"})).json()
    assert shown["config"]["api_key"] == MASKED
    choice = {**shown["config"], "stream": True, "usage_id": f"profile:other:{uuid4()}"}
    await sent(canvas, "POST", f"{CONVERSATIONS}/{conversation_id}/switch_llm", {"llm": choice})
    message = {"role": "user", "content": [{"type": "text", "text": "Again"}], "run": True}
    await sent(canvas, "POST", f"{CONVERSATIONS}/{conversation_id}/events", message)

    async def is_asked() -> bool:
        return bool(asked)

    await until_true(is_asked)
    assert {each.key for each in asked} == {"Bearer key of the profile"}


async def test_the_first_web_client_is_answered_as_before(rest: httpx.AsyncClient) -> None:
    """V0's web client says what it accepts, and a proxy may add a key to its requests."""
    rest.headers.update({"accept": "application/json, text/plain, */*", "x-session-api-key": "added"})
    assert (await rest.get(SETTINGS)).status_code == 404
    assert (await rest.post(SETTINGS, json={"llm_model": MODEL})).json() == {"message": "Settings stored"}
    settings = (await rest.get(SETTINGS)).json()
    assert (settings["llm_model"], "agent_settings" in settings) == (MODEL, False)
    created = (await rest.post(CONVERSATIONS, json={})).json()
    info = (await rest.get(f"{CONVERSATIONS}/{created['conversation_id']}")).json()
    assert info["conversation_id"] == created["conversation_id"]
