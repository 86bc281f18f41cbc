"""What the V0 door guarantees beyond the shapes of its answers; docs/compatibility.md says against what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import product
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, CreationParameters, Event
from conversations.redaction.masking import MASK
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.demo import DemoAgent
from sessions_app.loops.manager import get_manager
from sessions_app.models import ApiToken
from sessions_app.settings.tool_servers import tool_servers_of
from tests.support.data.events import event
from tests.support.data.faulty import fail
from tests.support.people.scripted_agent import until_true
from tests.support.wires.v0 import CONVERSATIONS, NEW_ID

pytestmark = pytest.mark.one_engine

TALK = f"{CONVERSATIONS}/talk"


async def conversations_stored() -> int:
    return await astore.call(Conversation.objects.count)


async def stored(conversation_id: str = "talk") -> list[dict[str, Any]]:
    """Return the payloads of a conversation, oldest first."""
    rows = Event.objects.filter(conversation__public_id=conversation_id).order_by("seq")
    return [
        json.loads(payload)
        for payload in await astore.call(lambda: list(rows.values_list("payload", flat=True)))
    ]


async def parameters(conversation_id: str) -> dict[str, Any]:
    rows = CreationParameters.objects.filter(conversation__public_id=conversation_id)
    found = await astore.call(lambda: list(rows.values_list("parameters", flat=True)))
    return dict(found[0]) if found else {}


async def create(rest: httpx.AsyncClient, **body: Any) -> str:
    response = await rest.post(CONVERSATIONS, json=body)
    assert response.status_code == 200, response.text
    conversation_id: str = response.json()["conversation_id"]
    return conversation_id


async def until_answered(rest: httpx.AsyncClient, conversation_id: str) -> list[dict[str, Any]]:
    """Return the events once the agent has said something."""

    async def said() -> list[dict[str, Any]]:
        events = (await rest.get(f"{CONVERSATIONS}/{conversation_id}/events?limit=100")).json()["events"]
        is_answered = any((each["source"], each.get("action")) == ("agent", "message") for each in events)
        return events if is_answered else []

    return await until_true(said)


# Creating


async def test_a_conversation_begins_with_its_first_message_and_is_answered(rest: httpx.AsyncClient) -> None:
    conversation_id = await create(
        rest, initial_user_msg="hello", selected_branch="main", git_provider="gitlab"
    )
    events = await until_answered(rest, conversation_id)
    assert [events[0][name] for name in ("id", "source", "action", "message")] == [
        0,
        "user",
        "message",
        "hello",
    ]
    info = (await rest.get(f"{CONVERSATIONS}/{conversation_id}")).json()
    shown = [info[name] for name in ("selected_branch", "git_provider", "trigger", "status")]
    assert shown == ["main", "gitlab", "gui", "RUNNING"]


async def test_images_alone_are_a_message_without_text(rest: httpx.AsyncClient) -> None:
    conversation_id = await create(rest, image_urls=["data:image/png;base64,AA=="])
    first = (await until_answered(rest, conversation_id))[0]
    args = first["args"]
    assert (args["content"], args["image_urls"], args["file_urls"]) == (
        "",
        ["data:image/png;base64,AA=="],
        None,
    )


async def test_a_conversation_without_a_message_is_started_all_the_same(rest: httpx.AsyncClient) -> None:
    conversation_id = await create(rest)

    async def is_running() -> bool:
        return bool((await rest.get(f"{CONVERSATIONS}/{conversation_id}")).json()["status"] == "RUNNING")

    await until_true(is_running)


REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"repository": "owner/name", "initial_user_msg": "hello"}, 401),
    ({"suggested_task": {"git_provider": "github"}}, 422),
    ({"selected_branch": "half of a pair \ud800"}, 422),
    ({"conversation_instructions": "a\0b"}, 422),
    ({"mcp_config": {"stdio_servers": [{"name": "x", "command": "y", "env": "A=\0"}]}}, 422),
    ({"selected_branch": "a\0b"}, 422),
    ({"replay_json": "no list"}, 422),
]


@pytest.mark.needs_engine
async def test_a_refused_creation_leaves_nothing_in_the_list(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body, status in REFUSED:
        with subtests.test(body=body, status=status):
            response = await rest.post(CONVERSATIONS, content=json.dumps(body))
            assert (response.status_code, await conversations_stored()) == (status, 0)


async def test_a_missing_key_is_told_before_anything_is_stored(
    rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.ModelAgent")
    response = await rest.post(CONVERSATIONS, json={"initial_user_msg": "hello"})
    assert (response.status_code, await conversations_stored()) == (400, 0)


async def test_a_failed_first_message_leaves_no_empty_conversation(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "append", fail)
    response = await rest.post(CONVERSATIONS, json={"initial_user_msg": "hello"})
    assert (response.status_code, response.text) == (500, "Internal Server Error")
    assert await conversations_stored() == 0


async def test_creating_an_id_that_exists_appends_the_message_and_keeps_the_rest(
    conversation: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(allow_set_conversation_id=True)
    await rest.patch(TALK, json={"title": "Mine"})
    await create(rest, conversation_id="talk", initial_user_msg="once more", selected_branch="other")
    info = (await rest.get(TALK)).json()
    assert (info["title"], info["selected_branch"]) == ("Mine", None)
    assert (await stored())[0]["args"]["content"] == "once more"


async def test_the_id_of_a_deleted_conversation_cannot_be_created_again(
    conversation: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(allow_set_conversation_id=True)
    await rest.delete(TALK)
    response = await rest.post(CONVERSATIONS, json={"conversation_id": "talk"})
    assert (response.status_code, (await rest.get(TALK)).json()) == (409, None)


async def test_what_a_conversation_was_created_with_is_kept_for_its_agents_next_start(
    rest: httpx.AsyncClient,
) -> None:
    trajectory = [
        {"id": 0, "action": "message", "source": "user", "args": {"content": "hello"}},
        {"id": 1, "observation": "agent_state_changed", "source": "environment", "extras": {}},
        {"id": 2, "action": "run", "source": "agent", "args": {"command": "ls"}},
    ]
    conversation_id = await create(
        rest, conversation_instructions="be brief", replay_json=json.dumps(trajectory)
    )
    kept = await parameters(conversation_id)
    assert kept["instructions"] == "be brief"
    assert json.loads(kept["replay"]) == [{"action": "run", "source": "agent", "args": {"command": "ls"}}]
    assert (await stored(conversation_id))[0]["args"]["content"] == "hello"


async def test_the_keys_of_tool_servers_are_sealed_and_follow_a_rotation(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"url": "https://tools.example.org", "api_key": "key-of-the-tools"}
    conversation_id = await create(rest, mcp_config={"shttp_servers": [server]})
    assert "key-of-the-tools" not in json.dumps(await parameters(conversation_id))
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [settings.SECRET_KEY])
    monkeypatch.setattr(settings, "SECRET_KEY", "another key of at least 32 characters")
    await astore.call(call_command, "rotate_secrets", stdout=StringIO())
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [])
    conversation = await get_manager().attach_to_conversation(conversation_id)
    assert conversation is not None
    kept = await astore.call(tool_servers_of, conversation)
    assert kept is not None
    assert kept["shttp_servers"] == [{**server, "timeout": 60}]


async def test_the_keys_of_a_conversations_tool_servers_are_masked_in_its_events_from_the_first_on(
    rest: httpx.AsyncClient, alice: User
) -> None:
    tools = {
        "shttp_servers": [
            {"url": "https://tools.example.org/?token=key-in-a-query", "api_key": "key-of-tools"}
        ],
        "stdio_servers": [{"name": "t", "command": "serve", "env": {"PASS": "swordfish"}}],
    }
    said = "key-in-a-query, key-of-tools, swordfish"
    conversation_id = await create(rest, mcp_config=tools, initial_user_msg=said)
    assert (await stored(conversation_id))[0]["args"]["content"] == f"{MASK}, {MASK}, {MASK}"
    other = await create(rest, initial_user_msg=said)
    assert (await stored(other))[0]["args"]["content"] == said


TASK = {"git_provider": "github", "repo": "owner/name", "issue_number": 7, "title": "Mend it"}


@pytest.mark.one_engine
async def test_a_suggested_task_of_every_provider_becomes_the_first_message(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for provider, task_type in product(
        ["github", "gitlab", "bitbucket", "azure_devops"],
        ["MERGE_CONFLICTS", "FAILING_CHECKS", "UNRESOLVED_COMMENTS", "OPEN_ISSUE"],
    ):
        with subtests.test(provider=provider, task_type=task_type):
            task = {**TASK, "git_provider": provider, "task_type": task_type}
            conversation_id = await create(rest, suggested_task=task, initial_user_msg="not this")
            said = (await stored(conversation_id))[0]["args"]["content"]
            assert all(word in said for word in ("#7", "owner/name"))
            assert ("merge request" in said) == (provider == "gitlab")
            assert (await rest.get(f"{CONVERSATIONS}/{conversation_id}")).json()[
                "trigger"
            ] == "suggested_task"


@pytest.mark.one_engine
@pytest.mark.parametrize("task_type", ["OPEN_PR", "CREATE_MICROAGENT"])
async def test_a_task_that_nobody_can_be_told_to_do_is_refused(
    task_type: str, rest: httpx.AsyncClient
) -> None:
    response = await rest.post(CONVERSATIONS, json={"suggested_task": {**TASK, "task_type": task_type}})
    assert response.status_code == 422


async def test_a_bearer_token_makes_a_conversation_that_came_by_the_api(
    alice: User, accounts: None, rest: httpx.AsyncClient
) -> None:
    _, token = await astore.call(ApiToken.issue, alice.pk, "script")
    triggers = []
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-Session-API-Key": token}):
        response = await rest.post(CONVERSATIONS, json={}, headers=headers)
        created = f"{CONVERSATIONS}/{response.json()['conversation_id']}"
        triggers.append((await rest.get(created, headers=headers)).json()["trigger"])
    assert triggers == ["openhands_api", "gui"]


@pytest.mark.one_engine
async def test_the_body_is_json_whatever_its_content_type_says(rest: httpx.AsyncClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await rest.post(CONVERSATIONS, content='{"initial_user_msg":"hello"}', headers=form)
    assert (response.status_code, response.json()["conversation_id"]) == (200, NEW_ID)


@pytest.mark.one_engine
async def test_a_body_of_any_depth_is_taken_or_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    called = '{"action":"call_tool_mcp","args":{"name":"x","arguments":{"x":%s}}}'
    for depth in (10, *range(700, 1000, 4), 5_000, 100_000):
        deep = "[" * depth + "]" * depth
        bodies = {
            CONVERSATIONS: f'{{"repository":{deep}}}',
            f"{TALK}/message": f'{{"message":{deep}}}',
            f"{TALK}/events": called % deep,
        }
        for path, body in bodies.items():
            assert (await rest.post(path, content=body)).status_code in (200, 422), (path, depth)
        assert (await rest.get(f"{TALK}/events")).status_code == 200, depth
        assert (await rest.get(f"{TALK}/trajectory")).status_code == 200, depth


# Renaming, deleting, stopping


async def test_a_title_is_trimmed_and_noted_as_a_change(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    before = (await rest.get(TALK)).json()["last_updated_at"]
    await rest.patch(TALK, json={"title": "  New  "})
    after = (await rest.get(TALK)).json()
    assert (after["title"], after["last_updated_at"] > before) == ("New", True)


async def test_a_conversation_has_a_time_of_its_last_change_from_the_creation_on(
    rest: httpx.AsyncClient,
) -> None:
    made = (await rest.post("/api/conversations", json={})).json()["conversation_id"]
    info = (await rest.get(f"/api/conversations/{made}")).json()
    assert info["last_updated_at"] >= info["created_at"]


async def test_a_conversation_with_unknown_values_can_be_opened_renamed_started_and_deleted(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    odd = {"trigger": "carrier pigeon", "provider": "sourceforge", "pr_number": "none"}
    await astore.call(Conversation.objects.filter(pk=conversation.pk).update, **odd)
    assert (await rest.get(TALK)).json()["trigger"] == "carrier pigeon"
    assert (await rest.patch(TALK, json={"title": "Odd"})).json() is True
    assert (await rest.post(f"{TALK}/start", json={})).json()["conversation_status"] == "RUNNING"
    assert (await rest.delete(TALK)).json() is True


@pytest.mark.needs_engine
async def test_a_failing_store_is_never_reported_as_a_conversation_that_is_not_there(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CONVERSATION_STORE", "tests.support.data.faulty.FailingStore")
    response = await rest.delete(TALK)
    assert (response.status_code, response.text) == (500, "Internal Server Error")


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_deleting_hides_every_event_and_takes_none_away(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{TALK}/message", json={"message": "hello"})
    await until_answered(rest, "talk")
    await rest.delete(TALK)
    assert (await rest.get(f"{TALK}/events")).status_code == 404
    assert (await stored())[0]["args"]["content"] == "hello"


async def test_deleting_one_conversation_leaves_those_whose_ids_begin_alike(
    alice: User, rest: httpx.AsyncClient
) -> None:
    for name in ("c1", "c10"):
        await astore.call(creation.create, alice, conversation_id=name)
    await rest.delete(f"{CONVERSATIONS}/c1")
    assert (await rest.get(f"{CONVERSATIONS}/c10")).json()["conversation_id"] == "c10"


async def test_starting_twice_and_stopping_twice_change_nothing_more(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    async def statuses(verb: str) -> list[str]:
        answers = [await rest.post(f"{TALK}/{verb}", json={}) for _ in range(2)]
        return [answer.json()["conversation_status"] for answer in answers]

    assert await statuses("start") == ["RUNNING", "RUNNING"]
    assert await statuses("stop") == ["RUNNING", "STOPPED"]


# Events


async def test_the_events_of_a_stopped_conversation_are_readable(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("hello")])
    events = (await rest.get(f"{TALK}/events")).json()["events"]
    trajectory = (await rest.get(f"{TALK}/trajectory")).json()["trajectory"]
    assert ([each["message"] for each in events], trajectory) == (["hello"], events)
    assert (await rest.get(TALK)).json()["status"] == "STOPPED"


async def test_a_message_to_a_stopped_conversation_starts_its_agent(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{TALK}/message", json={"message": "hello"})
    assert (await rest.get(TALK)).json()["status"] in ("STARTING", "RUNNING")
    assert (await until_answered(rest, "talk"))[0]["args"]["image_urls"] is None


async def test_a_client_cannot_set_numbers_costs_sources_or_causes(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    metrics = {"accumulated_cost": 99.0, "accumulated_token_usage": {"prompt_tokens": 5}}
    claims = {
        "id": 77,
        "timestamp": "1999-01-01T00:00:00",
        "source": "agent",
        "cause": 3,
        "llm_metrics": metrics,
        "tool_call_metadata": {"function_name": "run"},
    }
    await rest.post(f"{TALK}/events", json={**claims, "action": "run", "args": {"command": "ls"}})
    (shown,) = (await rest.get(f"{TALK}/events")).json()["events"]
    assert (shown["id"], shown["source"], shown["timestamp"] > "2020") == (0, "user", True)
    assert not {"cause", "llm_metrics", "tool_call_metadata"} & shown.keys()
    row = await astore.call(Conversation.objects.get, pk=conversation.pk)
    assert (row.accumulated_cost, row.prompt_tokens) == (0.0, 0)


async def test_an_unknown_event_type_in_the_log_is_passed_through(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    raw = '{"source":"agent","message":"","action":"of_tomorrow","args":{"n":1.10}}'
    await astore.call(writes.append, conversation, [event(raw=raw), event("after")])
    response = await rest.get(f"{TALK}/events")
    assert [each["action"] for each in response.json()["events"]] == ["of_tomorrow", "message"]
    assert '"args":{"n":1.10}' in response.text


@pytest.mark.needs_engine
async def test_text_search_finds_words_of_any_script_and_no_names_of_fields(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("Grüße 世界"), event("hello")])

    async def found(text: str) -> list[str]:
        events = (await rest.get(f"{TALK}/events", params={"query": text})).json()["events"]
        return [each["message"] for each in events]

    assert [await found("世界"), await found("HELLO"), await found("content")] == [
        ["Grüße 世界"],
        ["hello"],
        [],
    ]


async def test_dates_are_compared_as_moments_whatever_their_offset(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("hello")])
    now = datetime.now(UTC)
    ahead = now + timedelta(hours=9)  # what a clock nine hours east of here shows
    east = f"{ahead - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}+09:00"

    async def count(**query: str) -> int:
        return len((await rest.get(f"{TALK}/events", params=query)).json()["events"])

    assert (await count(start_date=east), await count(end_date=east)) == (1, 0)


async def test_a_page_that_can_hold_nothing_promises_nothing(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("hello")])
    response = await rest.get(f"{TALK}/events", params={"limit": 0})
    assert response.json() == {"events": [], "has_more": False}


async def test_ids_far_beyond_the_end_are_an_empty_page(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("hello")])
    for query in ({"start_id": 10**30}, {"end_id": -(10**30)}, {"start_id": 5, "end_id": 10**9}):
        response = await rest.get(f"{TALK}/events", params=query)
        assert response.json() == {"events": [], "has_more": False}


@pytest.mark.needs_engine
async def test_pages_of_long_events_end_early_and_say_so(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for number in range(4):
        await astore.call(writes.append, conversation, [event(f"{number}" * 2_000_000)])
    seen: list[int] = []
    start, more = 0, True
    while more:
        body = (await rest.get(f"{TALK}/events", params={"start_id": start, "limit": 100})).json()
        seen += [each["id"] for each in body["events"]]
        start, more = seen[-1] + 1, body["has_more"]
        assert len(body["events"]) < 4
    assert seen == [0, 1, 2, 3]


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_repeated_request_with_its_key_stores_nothing_twice(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for text in ("hello", "hello", "other"):
        await rest.post(f"{TALK}/message", json={"message": text}, headers={"Idempotency-Key": text})
    said = [each["args"]["content"] for each in await stored() if each["source"] == "user"]
    assert said == ["hello", "other"]


async def test_a_key_cannot_be_used_again_for_another_event(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    statuses = []
    for command in ("ls", "rm"):
        body = {"action": "run", "args": {"command": command}}
        response = await rest.post(f"{TALK}/events", json=body, headers={"Idempotency-Key": "1"})
        statuses.append(response.status_code)
    assert (statuses, len(await stored())) == ([200, 409], 1)


async def test_states_that_a_client_sends_steer_the_agent(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{TALK}/message", json={"message": "/approve"})

    async def asked() -> bool:
        events = await stored()
        return any(
            each.get("args", {}).get("confirmation_state") == "awaiting_confirmation" for each in events
        )

    await until_true(asked)
    accept = {"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}

    async def accepted() -> bool:
        return (await rest.post(f"{TALK}/events", json=accept)).status_code == 200

    await until_true(accepted)
    events = await until_answered(rest, "talk")
    assert any(each["message"] == "Agent state changed to user_confirmed" for each in events)


async def test_a_trajectory_longer_than_a_page_is_whole_and_in_order(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event(str(number)) for number in range(1_203)])
    trajectory = (await rest.get(f"{TALK}/trajectory")).json()["trajectory"]
    assert [each["id"] for each in trajectory] == list(range(1_203))


# Remembering


class QuotingAgent(DemoAgent):
    """Answers a question by quoting it."""

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return f"<update_prompt> {messages[0]['content'].partition('<events>')[2]} </update_prompt>"


async def test_a_prompt_is_made_from_the_events_around_the_one_asked_about(
    conversation: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent="tests.doors.v0.test_v0_guarantees.QuotingAgent")
    quiet = (
        '{"source":"environment","message":"","observation":"agent_state_changed","content":"","extras":{}}'
    )
    hidden = '{"source":"agent","message":"","action":"run","args":{"command":"env","hidden":true}}'
    texts = [event(f"event {number}") for number in range(20)]
    texts[4:4] = [event(raw=quiet), event(raw=hidden)]
    await astore.call(writes.append, conversation, texts)
    response = await rest.get(f"{TALK}/remember-prompt", params={"event_id": 7})
    told = [line.rpartition(": ")[2] for line in response.json()["prompt"].splitlines() if "event " in line]
    assert told == [f"event {number}" for number in range(2, 11)]


async def test_each_user_sees_what_is_theirs(
    conversation: ConversationRef, bob: User, accounts: None, rest: httpx.AsyncClient
) -> None:
    _, token = await astore.call(ApiToken.issue, bob.pk, "laptop")
    headers = {"X-Session-API-Key": token}
    assert (await rest.get(CONVERSATIONS, headers=headers)).json() == {"results": [], "next_page_id": None}
    assert (await rest.get(TALK, headers=headers)).json() is None
