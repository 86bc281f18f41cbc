"""What the web frontend asks of a V0 conversation, call by call in its order, and what it insists on."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation
from sessions_app import astore
from tests.conftest import Connect
from tests.support.people.scripted_agent import until_true
from tests.support.wires.v0 import CONVERSATIONS, NEW_ID, info
from tests.support.wires.v0_socket import V0Client

pytestmark = pytest.mark.one_engine

CONFIG = "/api/options/config"
SETTINGS = "/api/settings"
SECRETS = "/api/secrets"
FORMS = ["models", "agents", "security-analyzers"]

FIRST_RUN = {
    "llm_model": "openhands/claude-sonnet-4-20250514",
    "agent": "CodeActAgent",
    "language": "en",
    "confirmation_mode": False,
    "llm_api_key": "sk-typed",
    "remote_runtime_resource_factor": 1,
    "enable_default_condenser": True,
    "condenser_max_size": 120,
    "enable_sound_notifications": False,
    "provider_tokens_set": {},
    "mcp_config": {"sse_servers": [], "stdio_servers": [], "shttp_servers": []},
    "enable_proactive_conversation_starters": False,
    "enable_solvability_analysis": False,
    "search_api_key": "",
    "max_budget_per_task": None,
    "git_user_name": "openhands",
    "git_user_email": "openhands@all-hands.dev",
}
SHOWN_AGAIN = FIRST_RUN.keys() - {"llm_api_key", "search_api_key"}


@pytest.fixture
def page(rest: httpx.AsyncClient) -> httpx.AsyncClient:
    """What a page of the same origin sends: no cookie and no key, and where it comes from."""
    rest.headers["origin"] = "http://localhost"
    return rest


async def got(page: httpx.AsyncClient, path: str) -> Any:
    """Return the body of an answer that is a 200."""
    answer = await page.get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


async def posted(page: httpx.AsyncClient, path: str, body: Any = None) -> Any:
    """Return the body of an answer that is a success; without a body an empty request is sent."""
    answer = await page.post(path, **({} if body is None else {"json": body}))
    assert answer.is_success, (path, answer.text)
    return answer.json()


async def running(page: httpx.AsyncClient, conversation_id: str) -> dict[str, Any]:
    """Ask for the info as the page does, until it lets the page open its socket."""

    async def polled() -> dict[str, Any]:
        found: dict[str, Any] = await got(page, f"{CONVERSATIONS}/{conversation_id}")
        return found if found["status"] == "RUNNING" and found["runtime_status"] is not None else {}

    return await until_true(polled)


async def created(page: httpx.AsyncClient) -> str:
    """Press "New conversation", and return the id once it runs."""
    conversation_id: str = (await posted(page, CONVERSATIONS, {}))["conversation_id"]
    await running(page, conversation_id)
    return conversation_id


async def opened(page: httpx.AsyncClient, connect: Connect) -> tuple[str, V0Client]:
    """Return a new conversation and a socket to it whose chat box is ready."""
    conversation_id = await created(page)
    client = await connect(conversation_id)
    await client.state("awaiting_user_input")
    return conversation_id, client


async def listed(page: httpx.AsyncClient, query: str = "limit=20") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await got(page, f"{CONVERSATIONS}?{query}"))["results"]
    return found


async def change_state(client: V0Client, agent_state: str) -> None:
    await client.send({"action": "change_agent_state", "args": {"agent_state": agent_state}})


def numbers(client: V0Client) -> list[int]:
    """Return the numbers of the events that the socket was sent, in their order."""
    return [frame["id"] for frame in client.frames if "action" in frame or "observation" in frame]


# Start-up


async def test_each_start_up_asks_twice_what_kind_of_server_this_is(page: httpx.AsyncClient) -> None:
    for found in [await got(page, CONFIG), await got(page, CONFIG)]:
        assert found["APP_MODE"] == "oss"
        assert found["FEATURE_FLAGS"] == {"ENABLE_BILLING": False, "HIDE_LLM_SETTINGS": False}
        assert (found["POSTHOG_CLIENT_KEY"], found["GITHUB_CLIENT_ID"]) == ("", "")


async def test_a_first_run_has_no_settings_fills_its_forms_and_stores_what_it_posts(
    page: httpx.AsyncClient,
) -> None:
    assert (await page.get(SETTINGS)).status_code == 404
    for form in FORMS:
        options = await got(page, f"/api/options/{form}")
        assert (type(options), {type(option) for option in options}) == (list, {str})
    await posted(page, SETTINGS, FIRST_RUN)
    found = await got(page, SETTINGS)
    assert {name: found[name] for name in SHOWN_AGAIN} == {name: FIRST_RUN[name] for name in SHOWN_AGAIN}
    assert (found["llm_api_key"], found["llm_api_key_set"]) == (None, True)
    assert found["email_verified"] is not False


async def test_a_later_save_without_a_key_keeps_it_and_takes_what_the_consent_form_says(
    page: httpx.AsyncClient,
) -> None:
    await posted(page, SETTINGS, FIRST_RUN)
    assert (await got(page, SETTINGS))["user_consents_to_analytics"] is None  # the form is shown
    again = {name: value for name, value in FIRST_RUN.items() if name != "llm_api_key"}
    await posted(page, SETTINGS, {**again, "user_consents_to_analytics": False})
    found = await got(page, SETTINGS)
    assert (found["user_consents_to_analytics"], found["llm_api_key_set"]) == (False, True)


async def test_the_page_of_secrets_lists_adds_changes_and_removes(page: httpx.AsyncClient) -> None:
    assert await got(page, SECRETS) == {"custom_secrets": []}
    new = await page.post(SECRETS, json={"name": "TOKEN", "value": "x", "description": "mine"})
    changed = await page.put(f"{SECRETS}/TOKEN", json={"name": "KEY", "description": "ours"})
    listed = await got(page, SECRETS)
    removed = await page.delete(f"{SECRETS}/KEY")
    assert [each.status_code for each in (new, changed, removed)] == [201, 200, 200]
    assert listed == {"custom_secrets": [{"name": "KEY", "description": "ours"}]}


# Lists


@pytest.mark.needs_engine
async def test_the_home_page_shows_ten_and_the_panel_twenty_and_then_the_rest(
    page: httpx.AsyncClient, alice: User
) -> None:
    await astore.call(
        Conversation.objects.bulk_create,
        [Conversation(public_id=f"talk-{number}", owner=alice, version="V0") for number in range(25)],
    )
    home = await got(page, f"{CONVERSATIONS}?limit=10")
    panel = await got(page, f"{CONVERSATIONS}?limit=20")
    rest_of_it = await got(page, f"{CONVERSATIONS}?limit=20&page_id={panel['next_page_id']}")
    pages = [home, panel, rest_of_it]
    assert [len(each["results"]) for each in pages] == [10, 20, 5]
    assert rest_of_it["next_page_id"] is None
    ids = [each["conversation_id"] for each in panel["results"] + rest_of_it["results"]]
    assert len(set(ids)) == 25


async def test_a_list_item_is_the_whole_info_that_the_page_would_ask_for(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, _ = await opened(page, connect)

    async def is_counted() -> bool:  # who joins does not wait until that is noted
        counted: int = (await got(page, f"{CONVERSATIONS}/{conversation_id}"))["num_connections"]
        return counted == 1

    await until_true(is_counted)
    (item,) = await listed(page, "limit=10")
    assert item == await got(page, f"{CONVERSATIONS}/{conversation_id}")
    assert item.keys() == info("talk").keys()
    assert re.fullmatch(r"Conversation \w{5}", item["title"])


async def test_a_conversation_that_was_just_made_is_listed_as_one_that_starts_or_runs(
    page: httpx.AsyncClient,
) -> None:
    made = await posted(page, CONVERSATIONS, {})
    (item,) = await listed(page)
    found = await got(page, f"{CONVERSATIONS}/{made['conversation_id']}")
    assert {item["status"], found["status"]} <= {"STARTING", "RUNNING"}


# A new conversation


async def test_a_new_conversation_is_soon_one_whose_socket_may_be_opened(page: httpx.AsyncClient) -> None:
    made = await posted(page, CONVERSATIONS, {})
    found = await running(page, made["conversation_id"])
    assert made["conversation_id"] == NEW_ID
    assert (found["runtime_status"], found["conversation_version"]) == ("STATUS$READY", "V0")
    assert (found["url"], found["session_api_key"]) == (f"{CONVERSATIONS}/{made['conversation_id']}", None)


async def test_the_address_that_a_browser_dials_opens_the_chat_box(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id = await created(page)
    client = await connect(conversation_id, headers={"origin": "http://localhost"})
    assert client.address == (
        f"/socket.io/?latest_event_id=-1&conversation_id={conversation_id}&providers_set="
        "&session_api_key=null&EIO=4&transport=websocket"
    )
    state = await client.state("awaiting_user_input")
    assert isinstance(state["extras"], dict)


async def test_the_side_tabs_of_a_conversation_without_a_workspace_are_empty(
    page: httpx.AsyncClient,
) -> None:
    one = f"{CONVERSATIONS}/{await created(page)}"
    config = await got(page, f"{one}/config")
    assert "runtime_id" in config
    assert await got(page, f"{one}/git/changes") == []
    assert await got(page, f"{one}/vscode-url") == {"vscode_url": None}
    for _ in range(2):
        assert await got(page, f"{one}/web-hosts") == {"hosts": {}}
    assert await got(page, f"/api/v1/sandboxes?id={config['runtime_id']}") == [None]


# A talk


@pytest.mark.needs_engine
async def test_what_is_sent_comes_back_and_the_answer_has_a_message_of_its_own(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    _, client = await opened(page, connect)
    await client.say("hello")
    echo = await client.said("user")
    assert (echo["args"]["content"], echo["args"]["image_urls"], echo["args"]["file_urls"]) == (
        "hello",
        [],
        [],
    )
    assert (await client.said("agent"))["message"].startswith("You said: hello")


async def test_a_command_is_shown_until_what_it_printed_takes_its_place(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    _, client = await opened(page, connect)
    await client.say("/tool")
    command = await client.until(action="run")
    result = await client.until(observation="run")
    assert (command["args"]["command"], bool(command["args"]["thought"])) == ("date", True)
    assert (result["cause"], result["extras"]["command"]) == (command["id"], "date")
    assert (type(result["content"]), result["extras"]["metadata"]["exit_code"]) == (str, 0)


@pytest.mark.parametrize("decision", ["user_confirmed", "user_rejected"])
async def test_every_event_of_a_talk_has_what_the_page_needs_to_show_it_live_and_replayed(
    page: httpx.AsyncClient, connect: Connect, decision: str
) -> None:
    conversation_id, client = await opened(page, connect)
    await client.say("/tool")
    await client.state("awaiting_user_input")
    await client.say("/approve")
    await client.state("awaiting_user_confirmation")
    await client.until(action="run")
    await change_state(client, decision)
    await client.state("awaiting_user_input")
    late = await connect(conversation_id)
    await late.state("awaiting_user_input")
    for frame in client.frames + late.frames:
        if "action" in frame or "observation" in frame:
            types = [type(frame[name]) for name in ("id", "timestamp", "source", "message")]
            assert types == [int, str, str, str]
            assert isinstance(frame["args" if "action" in frame else "extras"], dict)
        else:
            assert frame["status_update"] is True


@pytest.mark.parametrize("opening", ["live", "replayed"])
async def test_the_page_knows_that_an_approval_is_awaited_before_it_shows_what_for(
    page: httpx.AsyncClient, connect: Connect, opening: str
) -> None:
    conversation_id, client = await opened(page, connect)
    await client.say("/approve")
    await client.state("awaiting_user_confirmation")
    action = await client.until(action="run")
    if opening == "replayed":
        client = await connect(conversation_id)
        await client.state("awaiting_user_confirmation")
        assert await client.until(action="run") == action
    assert action["args"]["confirmation_state"] == "awaiting_confirmation"


@pytest.mark.parametrize(
    ("decision", "observation", "answer"),
    [("user_confirmed", "run", "Done."), ("user_rejected", "user_rejected", "OK, I won't.")],
)
async def test_each_button_of_an_approval_is_obeyed(
    page: httpx.AsyncClient, connect: Connect, decision: str, observation: str, answer: str
) -> None:
    _, client = await opened(page, connect)
    await client.say("/approve")
    await client.state("awaiting_user_confirmation")
    action = await client.until(action="run")
    await change_state(client, decision)
    assert (await client.until(observation=observation))["cause"] == action["id"]
    assert (await client.said())["message"] == answer
    await client.state("awaiting_user_input")


async def test_the_stop_button_stops_the_agent_and_the_play_button_says_continue(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, client = await opened(page, connect)
    await client.say("/approve")
    await client.state("awaiting_user_confirmation")
    await change_state(client, "stopped")
    await client.state("stopped")
    await client.say("continue")
    assert (await client.said())["message"].startswith("You said: continue")
    assert (await got(page, f"{CONVERSATIONS}/{conversation_id}"))["status"] == "RUNNING"


async def test_files_are_uploaded_before_the_message_that_names_them(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, client = await opened(page, connect)
    answer = await page.post(
        f"{CONVERSATIONS}/{conversation_id}/upload-files",
        files=[("files", ("a.txt", b"a")), ("files", ("b.txt", b"b"))],
    )
    uploaded: list[str] = answer.json()["uploaded_files"]
    assert (len(uploaded), answer.json()["skipped_files"]) == (2, [])
    await client.send(
        {"action": "message", "args": {"content": "see", "image_urls": [], "file_urls": uploaded}}
    )
    assert (await client.said("user"))["args"]["file_urls"] == uploaded


async def test_the_menus_show_microagents_and_export_the_talk(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, client = await opened(page, connect)
    await client.say("hello")
    await client.state("awaiting_user_input")
    exported = await got(page, f"{CONVERSATIONS}/{conversation_id}/trajectory")
    assert "hello" in [event["message"] for event in exported["trajectory"]]
    assert await got(page, f"{CONVERSATIONS}/{conversation_id}/microagents") == {"microagents": []}


# Coming and going


async def test_a_new_name_is_in_the_info_and_in_the_list(page: httpx.AsyncClient) -> None:
    conversation_id = await created(page)
    answer = await page.patch(f"{CONVERSATIONS}/{conversation_id}", json={"title": "New name"})
    assert answer.is_success
    found = await got(page, f"{CONVERSATIONS}/{conversation_id}")
    assert [found["title"], *(item["title"] for item in await listed(page))] == ["New name", "New name"]


@pytest.mark.needs_engine
async def test_a_stop_right_after_the_creation_is_obeyed(page: httpx.AsyncClient) -> None:
    one = f"{CONVERSATIONS}/{(await posted(page, CONVERSATIONS, {}))['conversation_id']}"
    await posted(page, f"{one}/stop")
    assert (await got(page, one))["status"] == "STOPPED"


async def test_a_conversation_that_was_stopped_is_reopened_with_its_whole_history(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, client = await opened(page, connect)
    one = f"{CONVERSATIONS}/{conversation_id}"
    await client.say("hello")
    await client.state("awaiting_user_input")
    await posted(page, f"{one}/stop")
    assert [(await got(page, one))["status"], (await listed(page))[0]["status"]] == ["STOPPED", "STOPPED"]
    await posted(page, f"{one}/start", {"providers_set": []})
    assert (await running(page, conversation_id))["runtime_status"] == "STATUS$READY"
    again = await connect(conversation_id)
    assert (await again.said("user"))["message"] == "hello"
    assert (await again.said())["message"].startswith("You said: hello")
    await again.state("awaiting_user_input")
    await again.say("still there?")
    assert (await again.said())["message"].startswith("You said: still there?")


async def test_a_page_load_opens_two_sockets_and_the_one_that_goes_takes_nothing_with_it(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, abandoned = await opened(page, connect)
    kept = await connect(conversation_id)
    await kept.say("/approve")
    for client in (abandoned, kept):
        await client.state("awaiting_user_confirmation")
    await abandoned.leave()
    await change_state(kept, "user_confirmed")
    assert (await kept.said())["message"] == "Done."


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_page_that_reconnects_gets_each_event_once_and_its_state(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, client = await opened(page, connect)
    await client.say("hello")
    said = await client.said("user")
    await client.leave()
    other = await connect(conversation_id)
    await other.said()
    await other.state("awaiting_user_input")
    again = await connect(conversation_id, latest_event_id=said["id"])
    assert (await again.said())["message"].startswith("You said: hello")
    await again.state("awaiting_user_input")
    assert numbers(again) == sorted(set(numbers(again)))
    assert min(numbers(again)) > said["id"]


async def test_a_conversation_that_was_deleted_leaves_the_list_and_has_no_info(
    page: httpx.AsyncClient, connect: Connect
) -> None:
    conversation_id, _ = await opened(page, connect)
    assert (await page.delete(f"{CONVERSATIONS}/{conversation_id}")).is_success
    assert await listed(page) == []
    assert await got(page, f"{CONVERSATIONS}/{conversation_id}") is None


# All requests


async def test_an_unknown_conversation_is_null_and_an_unknown_address_a_404_in_json(
    page: httpx.AsyncClient,
) -> None:
    assert await got(page, f"{CONVERSATIONS}/0123456789abcdef0123456789abcdef") is None
    for method in ("GET", "POST"):
        answer = await page.request(method, "/api/billing/credits")
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


async def test_no_address_is_redirected_to_one_with_a_slash(page: httpx.AsyncClient) -> None:
    one = f"{CONVERSATIONS}/{await created(page)}"
    answers = [
        await page.get(CONVERSATIONS),
        await page.get(one),
        await page.patch(one, json={"title": "New name"}),
        await page.post(f"{one}/stop"),
        await page.post(f"{one}/start", json={"providers_set": []}),
        await page.post(SETTINGS, json=FIRST_RUN),
        await page.get("/api/v1/sandboxes?id=x"),
    ]
    assert [answer.status_code for answer in answers] == [200] * len(answers)


async def test_all_that_an_opened_page_asks_at_once_is_answered(page: httpx.AsyncClient) -> None:
    await posted(page, SETTINGS, FIRST_RUN)
    one = f"{CONVERSATIONS}/{await created(page)}"
    tabs = ["config", "git/changes", "vscode-url", "web-hosts", "web-hosts"]
    paths = [CONFIG, CONFIG, SETTINGS, one, f"{CONVERSATIONS}?limit=20", "/api/v1/sandboxes?id=x"]
    answers = await asyncio.gather(*(page.get(path) for path in [*paths, *(f"{one}/{tab}" for tab in tabs)]))
    assert [answer.status_code for answer in answers] == [200] * 11
