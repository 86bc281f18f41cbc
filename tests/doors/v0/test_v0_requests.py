"""What the V0 door makes of odd requests: long ones, numbers and dates at the edge, headers, methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.log import writes
from conversations.models import ConversationRef, CreationParameters
from sessions_app import astore
from sessions_app.models import ApiToken
from tests.support.data.events import event
from tests.support.wires.v0 import CONVERSATIONS, EVENT_TIME, NEW_ID, Problem, info

pytestmark = pytest.mark.one_engine

TALK = f"{CONVERSATIONS}/talk"
EVENTS = f"{TALK}/events"
ANSWER_MAX_BYTES = 100_000
MANY = 99_000

CACHE_HEADERS = {
    "cache-control": "no-cache, no-store, must-revalidate, max-age=0",
    "pragma": "no-cache",
    "expires": "0",
}


def stdio(**members: Any) -> dict[str, Any]:
    """Return a body with one tool server that is a program."""
    return {"mcp_config": {"stdio_servers": [{"name": "tools", "command": "serve", **members}]}}


def cache_headers(response: httpx.Response) -> dict[str, str | None]:
    return {name: response.headers.get(name) for name in CACHE_HEADERS}


# Long bodies

LONG_BODIES: dict[str, tuple[str, Any]] = {
    "a list of numbers for texts": (CONVERSATIONS, {"image_urls": [1] * MANY}),
    "a list of images": (CONVERSATIONS, {"image_urls": ["data:,"] * MANY}),
    "a long unknown member, beside five that are missing": (
        CONVERSATIONS,
        {"suggested_task": {"x": "a" * 4_000_000}},
    ),
    "many unknown members": (CONVERSATIONS, {f"k{number}": number for number in range(MANY)}),
    "many unknown members of a member": (
        CONVERSATIONS,
        {"mcp_config": {f"k{number}": number for number in range(MANY)}},
    ),
    "a long name": (CONVERSATIONS, {"é" * 2_000_000: 1}),
    "long names": (CONVERSATIONS, {f"{number}{'é' * 40_000}": 1 for number in range(50)}),
    "long values": (CONVERSATIONS, {f"k{number}": "é" * 40_000 for number in range(50)}),
    "numbers for servers": (CONVERSATIONS, {"mcp_config": {"sse_servers": [1] * MANY}}),
    "many servers": (CONVERSATIONS, {"mcp_config": {"shttp_servers": ["https://a.b"] * 10_000}}),
    "many arguments": (CONVERSATIONS, stdio(args=["x"] * MANY)),
    "many arguments in one text": (CONVERSATIONS, stdio(args="x " * MANY)),
    "an environment of numbers": (CONVERSATIONS, stdio(env=dict.fromkeys(map(str, range(MANY)), 1))),
    "a large environment": (CONVERSATIONS, stdio(env=dict.fromkeys(map(str, range(MANY)), "x"))),
    "a large environment in one text": (CONVERSATIONS, stdio(env="x=y," * MANY)),
    "a long URL": (CONVERSATIONS, {"mcp_config": {"sse_servers": [f"https://a.b/{'x' * MANY}"]}}),
    "a long name of a server": (CONVERSATIONS, stdio(name="x" * MANY)),
    "a long repository": (CONVERSATIONS, {"repository": f"owner/{'é' * MANY}"}),
    "a trajectory that is none": (CONVERSATIONS, {"replay_json": f'["{"é" * 1_000_000}"]'}),
    "a replay and a message": (
        CONVERSATIONS,
        {
            "replay_json": '[{"action":"message","args":{"content":"hello"}}]',
            "initial_user_msg": "a" * 1_000_000,
        },
    ),
    "a list": (CONVERSATIONS, [1] * MANY),
    "a text": (CONVERSATIONS, "a" * 1_000_000),
    "many providers": (f"{TALK}/start", {"providers_set": ["nobody"] * MANY}),
    "the same provider many times": (f"{TALK}/start", {"providers_set": ["github"] * MANY}),
    "an experiment of numbers": (
        f"{TALK}/exp-config",
        {"config": dict.fromkeys(map(str, range(MANY)), 1)},
    ),
    "an experiment with long names": (
        f"{TALK}/exp-config",
        {"config": {f"{number}{'é' * 40_000}": "x" for number in range(50)}},
    ),
    "a number for a message": (f"{TALK}/message", {"message": [0] * MANY}),
}


async def test_a_long_body_that_is_refused_is_not_sent_back(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, (path, body) in LONG_BODIES.items():
        with subtests.test(name):
            response = await rest.post(path, json=body)
            assert (response.status_code, len(response.content) < ANSWER_MAX_BYTES) == (422, True)
            assert 0 < len(response.json()["detail"]) <= 20


async def test_a_refused_value_is_shown_where_it_is_short_and_shallow(rest: httpx.AsyncClient) -> None:
    async def shown(value: Any) -> Any:
        (problem,) = (await rest.post(CONVERSATIONS, json={"repository": value})).json()["detail"]
        return problem["input"]

    short = {"a": [1, 2.5, None, True, "é\n"]}
    assert await shown(short) == short
    for value in ([0] * 2_000, ["é" * 300], {"é" * 300: 1}, 10**2_000, json.loads("[" * 60 + "]" * 60)):
        assert await shown(value) is None


async def test_a_body_up_to_its_bounds_is_taken(rest: httpx.AsyncClient) -> None:
    body = {
        "image_urls": ["data:,"] * 100,
        "mcp_config": {
            "sse_servers": ["https://tools.example.org"] * 100,
            **stdio(args=["x"] * 1000, env=dict.fromkeys(map(str, range(1000)), "x"))["mcp_config"],
        },
    }
    response = await rest.post(CONVERSATIONS, json=body)
    assert (response.status_code, response.json()["conversation_id"]) == (200, NEW_ID)


async def test_known_members_are_looked_at_among_many_unknown_ones(rest: httpx.AsyncClient) -> None:
    body = {**{f"k{number}": number for number in range(1_000)}, "repository": 7}
    assert (await rest.post(CONVERSATIONS, json=body)).json() == Problem(
        "string_type", ["body", "repository"]
    )


# Numbers and dates at the edge


NO_NUMBERS: list[tuple[str, str, str]] = [
    ("PATCH", TALK, '{"title":1e400}'),
    ("GET", EVENTS, '{"exclude_hidden":1e400}'),
    ("GET", EVENTS, '{"start_date":-1e400}'),
    ("POST", CONVERSATIONS, '{"repository":[1e400]}'),
    ("POST", EVENTS, '{"action":"finish","args":{"outputs":{"a":1e400}}}'),
    ("POST", EVENTS, '{"action":"finish","args":{"outputs":{"a":NaN}}}'),
]


async def test_a_number_beyond_every_range_is_no_json(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for method, path, body in NO_NUMBERS:
        with subtests.test(method=method, path=path):
            response = await rest.request(method, path, content=body)
            assert (response.status_code, response.json()) == (422, Problem("json_invalid", ["body", 0]))
            assert (await rest.get(EVENTS)).json()["events"] == []


async def test_a_trajectory_with_a_number_beyond_every_range_is_refused(rest: httpx.AsyncClient) -> None:
    trajectory = (
        '[{"action":"message","args":{"content":"hello"}},{"action":"finish","args":{"outputs":1e400}}]'
    )
    response = await rest.post(CONVERSATIONS, json={"replay_json": trajectory})
    assert (response.status_code, response.json()) == (422, Problem("value_error", ["body", "replay_json"]))


async def test_a_date_that_is_beyond_the_calendar_in_utc_is_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for moment, name in product(
        ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"], ["start_date", "end_date"]
    ):
        with subtests.test(moment=moment, name=name):
            in_query = await rest.get(EVENTS, params={name: moment})
            in_body = await rest.request("GET", EVENTS, json={name: moment})
            assert (in_query.status_code, in_body.status_code) == (422, 422)
            assert in_query.json() == Problem("value_error", ["query", name])
            assert in_body.json() == Problem("value_error", ["body", name])


MOMENTS = [
    "0001-01-01T00:00:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31",
    "0",
    "-1",
    "1e400",
    "inf",
    "nan",
    "9" * 400,
    "2025-01-01T00:00:00+24:00",
]


async def test_any_date_is_taken_or_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for moment in MOMENTS:
        with subtests.test(moment=moment):
            for name in ("start_date", "end_date"):
                assert (await rest.get(EVENTS, params={name: moment})).status_code in (200, 422)
                assert (await rest.request("GET", EVENTS, json={name: moment})).status_code in (200, 422)


# The filter of events


FILTERS = ("query", "source", "start_date", "end_date")


async def test_a_blank_filter_is_none(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(writes.append, conversation, [event("hello")])
    for blank, name in product(["", " "], FILTERS):
        with subtests.test(blank=blank, name=name):
            for response in (
                await rest.get(EVENTS, params={name: blank}),
                await rest.request("GET", EVENTS, json={name: blank}),
            ):
                assert (response.status_code, len(response.json()["events"])) == (200, 1)


async def test_a_blank_filter_of_the_query_leaves_that_of_the_body(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("hello"), event("other")])
    response = await rest.request("GET", EVENTS, params={"query": ""}, json={"query": "hello"})
    assert [each["message"] for each in response.json()["events"]] == ["hello"]


# What a client accepts


@pytest.mark.parametrize("accepted", ["text/html", "image/png", "application/xml;q=0.5", "nonsense"])
async def test_the_answer_is_json_whatever_is_accepted(
    accepted: str, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for path in (CONVERSATIONS, TALK, EVENTS, f"{TALK}/trajectory"):
        response = await rest.get(path, headers={"Accept": accepted})
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")


async def test_a_parameter_called_format_is_like_any_unknown_one(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    response = await rest.get(TALK, params={"format": "xml"})
    assert (response.status_code, response.json()) == (200, info("talk"))
    assert (await rest.get("/api/schema/", params={"format": "yaml"})).text.startswith("openapi:")


# Headers


@pytest.mark.parametrize("path", [TALK, "/api/nothing", f"{CONVERSATIONS}/", "/api/conversations/a..b"])
async def test_no_answer_may_be_kept(
    path: str, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert cache_headers(await rest.get(path)) == CACHE_HEADERS


async def test_the_answer_of_a_server_that_failed_may_not_be_kept(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CONVERSATION_STORE", "tests.support.data.faulty.FailingStore")
    response = await rest.delete(TALK)
    assert (response.status_code, cache_headers(response)) == (500, CACHE_HEADERS)


async def test_a_page_of_another_origin_may_say_which_request_it_repeats(
    configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch, rest: httpx.AsyncClient
) -> None:
    origin = "https://pages.example"
    configured(permitted_origins=(origin,))
    monkeypatch.setattr(settings, "CORS_ALLOWED_ORIGINS", [origin])
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "idempotency-key",
    }
    response = await rest.options(f"{TALK}/message", headers=asked)
    assert response.status_code == 200
    assert "idempotency-key" in response.headers["access-control-allow-headers"].split(", ")


# Who came in by what


@pytest.mark.parametrize("key", ["null", "of-nobody"])
async def test_the_trigger_is_that_of_the_key_that_opened(
    key: str, alice: User, accounts: None, rest: httpx.AsyncClient
) -> None:
    _, token = await astore.call(ApiToken.issue, alice.pk, "script")
    headers = {"X-Session-API-Key": key, "Authorization": f"Bearer {token}"}
    created = (await rest.post(CONVERSATIONS, json={}, headers=headers)).json()["conversation_id"]
    shown = (await rest.get(f"{CONVERSATIONS}/{created}", headers=headers)).json()
    assert shown["trigger"] == "openhands_api"


async def test_two_keys_that_open_nothing_open_nothing(accounts: None, rest: httpx.AsyncClient) -> None:
    headers = {"X-Session-API-Key": "null", "Authorization": "Bearer of-nobody"}
    assert (await rest.get(CONVERSATIONS, headers=headers)).status_code == 401


# Methods and parameters


async def test_options_are_a_method_that_nobody_serves(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in [CONVERSATIONS, TALK, EVENTS, f"{TALK}/start", f"{TALK}/trajectory"]:
        with subtests.test(path):
            response = await rest.options(path)
            assert (response.status_code, response.json()) == (405, {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("path", [CONVERSATIONS, EVENTS])
async def test_too_many_parameters_are_refused_in_a_sentence(
    path: str, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    response = await rest.get(f"{path}?{'&'.join(f'p{number}=' for number in range(1_001))}")
    refusal = {"detail": "A request may have 1000 parameters at most."}
    assert (response.status_code, response.json()) == (400, refusal)
    assert cache_headers(response) == CACHE_HEADERS


async def test_too_many_parameters_are_refused_at_the_native_door_in_its_form(
    rest: httpx.AsyncClient,
) -> None:
    response = await rest.get(f"/api/native/conversations?{'&'.join(f'p{n}=' for n in range(1_001))}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid")


# Trajectories


async def test_a_trajectory_may_begin_with_what_the_agent_was_told(rest: httpx.AsyncClient) -> None:
    ran = {"action": "run", "source": "agent", "args": {"command": "ls"}}
    trajectory = [
        {"id": 0, "observation": "agent_state_changed", "source": "environment", "extras": {}},
        {"id": 1, "action": "system", "source": "agent", "args": {"content": "Be kind", "tools": []}},
        {"id": 2, "action": "message", "source": "user", "args": {"content": "hello"}},
        {"id": 3, **ran},
    ]
    response = await rest.post(CONVERSATIONS, json={"replay_json": json.dumps(trajectory)})
    created = response.json()["conversation_id"]
    shown = (await rest.get(f"{CONVERSATIONS}/{created}/events", params={"limit": 1})).json()["events"]
    rows = CreationParameters.objects.filter(conversation__public_id=created)
    kept = await astore.call(lambda: rows.values_list("parameters", flat=True).get())
    assert [each["message"] for each in shown] == ["hello"]
    assert json.loads(kept["replay"]) == [ran]


async def test_a_trajectory_of_nothing_but_what_the_agent_was_told_is_refused(
    rest: httpx.AsyncClient,
) -> None:
    trajectory = [{"action": "system", "source": "agent", "args": {"content": "Be kind"}}]
    response = await rest.post(CONVERSATIONS, json={"replay_json": json.dumps(trajectory)})
    assert (response.status_code, response.json()) == (422, Problem("value_error", ["body", "replay_json"]))


# The order of an answer's members

INFO_MEMBERS = [
    "conversation_id",
    "title",
    "last_updated_at",
    "status",
    "runtime_status",
    "selected_repository",
    "selected_branch",
    "git_provider",
    "trigger",
    "num_connections",
    "url",
    "session_api_key",
    "created_at",
    "pr_number",
    "conversation_version",
    "sub_conversation_ids",
]


async def test_a_conversation_has_all_its_members_in_the_wires_order(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert list((await rest.get(TALK)).json()) == INFO_MEMBERS


async def test_a_list_has_all_its_members_in_the_wires_order(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    page = (await rest.get(CONVERSATIONS)).json()
    assert list(page) == ["results", "next_page_id"]
    assert [list(each) for each in page["results"]] == [INFO_MEMBERS]


@pytest.mark.parametrize("path", [CONVERSATIONS, f"{TALK}/start", f"{TALK}/stop"])
async def test_what_became_of_a_conversation_has_all_its_members_in_the_wires_order(
    path: str, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    members = ["status", "conversation_id", "message", "conversation_status"]
    assert list((await rest.post(path, json={})).json()) == members


async def test_a_page_of_events_has_its_members_in_the_wires_order(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("hello")])
    page = (await rest.get(EVENTS)).json()
    assert (list(page), page["events"][0]["timestamp"]) == (["events", "has_more"], EVENT_TIME)
