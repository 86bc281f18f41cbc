"""The agent face: conversations that V1 clients start, find, look at, change, copy and delete."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import chain, product
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.loops import turn_events
from sessions_app.models import AgentLoop, AgentSetup, ApiToken
from sessions_app.settings import agent_setups
from tests.doors.test_access import bearer
from tests.support.people.pairs import Pair, new_pair
from tests.support.people.scripted_agent import Stage, manager, stage, until_said, until_status
from tests.support.wires.v1 import AGENT, HEX, ID, NONE, ROUTES, SHARED, START, Route, known, said, started

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

MASK = "**********"
REQUIRED = {
    *("id", "agent", "workspace", "persistence_dir", "max_iterations", "stuck_detection"),
    *("execution_status", "confirmation_policy", "security_analyzer", "activated_knowledge_skills"),
    *("stats", "secret_registry", "title", "metrics", "created_at", "updated_at"),
}
"""What the first release reads of a conversation."""


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return agent_setups.create(alice, agent_setups.NewSetup(), conversation_id=HEX)


def refs(found: dict[str, Any]) -> ConversationRef:
    return Conversation.objects.get(public_id=UUID(found["id"]).hex).ref


# Who may


@pytest.mark.parametrize("prefix", [AGENT, "/agent/api/acp/conversations"])
async def test_an_owner_is_answered_a_stranger_finds_nothing_and_nobody_is_let_in(
    accounts: None, alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests, prefix: str
) -> None:
    def own() -> tuple[str, Pair]:
        pair, name = new_pair(), uuid4()
        agent_setups.create(pair.owner, agent_setups.NewSetup(), conversation_id=name.hex)
        return str(name), pair

    async def status(route: Route, conversation_id: str, key: str | None) -> int:
        path = f"{prefix}/{conversation_id}{route.path}"
        headers = bearer(key) if key else {}
        return (await rest.request(route.method, path, json=route.body, headers=headers)).status_code

    read = await astore.call(own)
    for route in ROUTES:
        with subtests.test(str(route)):
            name, pair = read if route.method == "GET" else await astore.call(own)
            owner, stranger = pair.tokens["owner"], pair.tokens["stranger"]
            asked = [(name, None), (name, stranger), (NONE, owner), ("no-uuid", owner), (name.upper(), owner)]
            assert [await status(route, *each) for each in asked] == [401, 404, 404, 422, route.owner]


@pytest.mark.parametrize("spelled", [ID, HEX, ID.upper(), HEX.upper()])
async def test_an_id_is_taken_in_every_spelling_and_printed_with_dashes(
    talk: ConversationRef, rest: httpx.AsyncClient, spelled: str
) -> None:
    assert known(await rest.get(f"{AGENT}/{spelled}"))["id"] == ID


async def test_what_is_not_there_is_not_found_in_the_wires_words(rest: httpx.AsyncClient) -> None:
    answers = [known(await rest.get(f"{AGENT}/{NONE}{path}"), 404) for path in ("", "/events/search")]
    assert answers == [{"detail": "Not Found"}, {"detail": f"Conversation not found: {NONE}"}]


async def test_a_malformed_id_is_named(rest: httpx.AsyncClient) -> None:
    (problem,) = known(await rest.get(f"{AGENT}/no-uuid"), 422)["detail"]
    assert problem["loc"] == ["path", "conversation_id"]


async def test_a_conversation_whose_id_is_no_uuid_can_be_looked_at(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert known(await rest.get(f"{AGENT}/talk"))["id"] == "talk"


async def test_what_is_not_served_is_not_found(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for path in ["/agent/nowhere", f"{AGENT}/{ID}/switch_llm", f"{SHARED}/{ID}/goal"]:
        with subtests.test(path):
            assert known(await rest.post(path, json={}), 404) == {"detail": "Not Found"}


async def test_a_failure_is_a_500_in_the_wires_form_and_says_nothing_of_its_inside(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions_app.openhands_v1.information.dashed", lambda public_id: 1 / 0)
    answer = known(await rest.get(f"{AGENT}/{ID}"), 500)
    assert answer == {"detail": "Internal Server Error", "exception": "ZeroDivisionError"}


# Start


async def test_the_least_that_a_client_sends_starts_a_conversation(rest: httpx.AsyncClient) -> None:
    response = await rest.post(AGENT, json=START)
    found = known(response, 201)
    assert found.keys() >= REQUIRED
    assert (found["execution_status"], found["title"]) == ("idle", None)


async def test_what_is_not_sent_has_the_wires_defaults(rest: httpx.AsyncClient) -> None:
    found = await started(rest)
    assert (found["max_iterations"], found["stuck_detection"], found["confirmation_policy"]) == (
        500,
        True,
        {"kind": "NeverConfirm"},
    )


async def test_members_that_nobody_knows_are_ignored(rest: httpx.AsyncClient) -> None:
    found = await started(rest, of_tomorrow={"a": 1}, worktree=None, agent_definitions=[{}])
    assert "of_tomorrow" not in found


async def test_what_newer_clients_send_is_printed_again(rest: httpx.AsyncClient) -> None:
    sent = {"client_tools": [{"name": "look"}], "tags": {"a": "b"}, "hook_config": {"hooks": []}}
    found = await started(rest, **sent)
    assert {name: found[name] for name in sent} == sent


async def test_an_agent_is_kept_as_it_was_sent_and_printed_without_its_keys(rest: httpx.AsyncClient) -> None:
    sent = json.loads(json.dumps(START["agent"]))
    sent["mcp_config"] = {"mcpServers": {"a": {"command": "serve", "env": {"TOKEN": "a-token"}}}}
    found = await started(rest, agent=sent, conversation_id=ID)
    setup = await astore.call(AgentSetup.objects.get)
    assert json.loads(setup.sealed_agent.open()) == sent
    assert found["agent"]["llm"] == {**sent["llm"], "api_key": MASK}
    assert found["agent"]["condenser"]["llm"]["api_key"] == MASK
    assert found["agent"]["mcp_config"]["mcpServers"]["a"] == {"command": "serve", "env": {"TOKEN": MASK}}


async def test_an_agent_without_a_kind_is_the_ordinary_one(rest: httpx.AsyncClient) -> None:
    agent = {name: value for name, value in START["agent"].items() if name != "kind"}
    assert (await started(rest, agent=agent))["agent"]["kind"] == "Agent"


async def test_a_conversation_starts_without_an_agent(rest: httpx.AsyncClient) -> None:
    found = known(await rest.post(AGENT, json={"workspace": START["workspace"]}), 201)
    assert found["agent"]["kind"] == "Agent"


async def test_secrets_are_taken_as_texts_and_as_sources_and_never_printed(rest: httpx.AsyncClient) -> None:
    secrets = {
        "TEXT": "first-value",
        "STATIC": {"kind": "StaticSecret", "value": "second-value", "description": "what for"},
        "LOOKUP": {
            "kind": "LookupSecret",
            "url": "https://a.b/third-value",
            "headers": {"K": "fourth-value"},
        },
    }
    response = await rest.post(AGENT, json={**START, "secrets": secrets})
    sources = known(response, 201)["secret_registry"]["secret_sources"]
    assert "-value" not in response.text
    assert {name: (source["kind"], source["value"]) for name, source in sources.items()} == {
        "TEXT": ("StaticSecret", MASK),
        "STATIC": ("StaticSecret", MASK),
        "LOOKUP": ("LookupSecret", MASK),
    }


async def test_what_is_said_first_is_answered_whatever_its_run_says(
    stage: Stage, manager: object, rest: httpx.AsyncClient
) -> None:
    found = await started(rest, initial_message=said("hello"))
    await until_said(await astore.call(refs, found), "answer to hello")


async def test_a_conversation_that_is_told_something_first_runs_once_it_is_there(
    stage: Stage, manager: object, rest: httpx.AsyncClient
) -> None:
    found = await started(rest, initial_message=said("hold"))
    await stage.holding()
    assert found["execution_status"] == "running"


async def test_an_existing_id_answers_the_conversation_unchanged(rest: httpx.AsyncClient) -> None:
    first = await started(rest, conversation_id=ID, max_iterations=3)
    second = await rest.post(AGENT, json={**START, "conversation_id": HEX, "max_iterations": 4})
    assert (second.status_code, second.json()) == (200, first)


async def test_a_deleted_conversation_is_brought_back_with_its_history(rest: httpx.AsyncClient) -> None:
    await started(rest, conversation_id=ID)
    before = (await rest.get(f"{AGENT}/{ID}/events/search")).text
    known(await rest.delete(f"{AGENT}/{ID}"))
    again = await rest.post(AGENT, json={**START, "conversation_id": ID})
    assert again.status_code == 200
    assert (await rest.get(f"{AGENT}/{ID}/events/search")).text == before


async def test_somebody_elses_id_is_taken_and_nothing_is_told(
    accounts: None, talk: ConversationRef, bob: User, rest: httpx.AsyncClient
) -> None:
    token = await astore.call(lambda: ApiToken.issue(bob.pk, "laptop")[1])
    answers = [
        await rest.post(AGENT, json={**START, "conversation_id": ID, **more}, headers=bearer(token))
        for more in ({}, {"initial_message": said("mine now")})
    ]
    assert [answer.status_code for answer in answers] == [409, 409]
    assert "alice" not in answers[0].text
    assert await astore.call(Conversation.objects.owned_by(bob.pk).count) == 0


async def test_a_child_names_its_parent_and_the_parent_its_children(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await started(rest, parent_conversation_id=HEX)
    parent = known(await rest.get(f"{AGENT}/{ID}"))
    assert (child["parent_conversation_id"], parent["sub_conversation_ids"]) == (ID, [child["id"]])


WRONG_STARTS: dict[str, dict[str, Any]] = {
    "no workspace": {"agent": START["agent"]},
    "a workspace without a directory": {**START, "workspace": {}},
    "an agent that is a text": {**START, "agent": "agent"},
    "an id that is no UUID": {**START, "conversation_id": "talk"},
    "no iterations": {**START, "max_iterations": 0},
    "a policy of tomorrow": {**START, "confirmation_policy": {"kind": "AskMyMother"}},
    "a policy with the path of its class": {**START, "confirmation_policy": {"kind": "a.AlwaysConfirm"}},
    "a message that an agent says": {**START, "initial_message": {"role": "assistant", "content": []}},
    "a secret that is a number": {**START, "secrets": {"KEY": 1}},
    "a static secret without a value": {**START, "secrets": {"KEY": {"kind": "StaticSecret"}}},
    "a secret without a kind": {**START, "secrets": {"KEY": {"value": "v"}}},
    "a secret without a name": {**START, "secrets": {"": "v"}},
    "a NUL in a tag": {**START, "tags": {"a": "\0"}},
    "a NUL in the agent": {**START, "agent": {"llm": {"model": "\0"}}},
    "a NUL as a name": {**START, "agent": {"llm": {"\0": 1}}},
    "half of a surrogate pair": {**START, "client_tools": ["\ud800"]},
    "too many tags": {**START, "tags": {f"tag {number}": "" for number in range(51)}},
}


async def test_a_wrong_start_is_a_422_and_starts_nothing(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, body in WRONG_STARTS.items():
        with subtests.test(name):
            response = await rest.post(AGENT, content=json.dumps(body))
            assert isinstance(known(response, 422)["detail"], list)
            assert await astore.call(Conversation.objects.count) == 0


async def test_an_agent_that_is_nested_too_deeply_is_a_422(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for depth in [101, 900, 100_000]:
        with subtests.test(depth=depth):
            nested = '{"a":' * depth + "1" + "}" * depth
            body = f'{{"agent":{nested},"workspace":{{"working_dir":"/"}}}}'
            assert (await rest.post(AGENT, content=body)).status_code == 422


MIB = 1024 * 1024
LONG_MEMBERS: dict[str, tuple[str, Any]] = {
    "agent": ("agent", {"kind": "Agent", "llm": {"model": "é" * (MIB // 2)}}),
    "workspace": ("workspace", {"working_dir": "/", "more": "x" * MIB}),
    "policy": ("confirmation_policy", {"kind": "NeverConfirm", "more": "x" * MIB}),
    "analyzer": ("security_analyzer", {"kind": "LLMSecurityAnalyzer", "more": "x" * MIB}),
    "hooks": ("hook_config", {"more": "x" * MIB}),
    "tools": ("client_tools", ["x" * MIB]),
    "tools' modules": ("tool_module_qualnames", {"more": "x" * MIB}),
    "a secret": ("secrets", {"KEY": {"kind": "StaticSecret", "value": "x" * MIB}}),
}


async def test_a_part_of_a_start_that_is_too_long_is_a_422_that_names_it_and_the_bound(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for case, (name, value) in LONG_MEMBERS.items():
        with subtests.test(case):
            response = await rest.post(AGENT, json={**START, name: value})
            (problem,) = known(response, 422)["detail"]
            assert problem["loc"][:2] == ["body", name]
            assert problem["msg"] == f"Value error, `{name}` may have {MIB} bytes as JSON at the most"


async def test_a_part_of_a_start_may_be_as_long_as_the_bound(rest: httpx.AsyncClient) -> None:
    workspace = {"working_dir": "/", "more": ""}
    room = MIB - len(json.dumps(workspace, separators=(",", ":")))
    await started(rest, workspace={**workspace, "more": "x" * room})


async def test_an_unknown_parent_is_a_404(rest: httpx.AsyncClient) -> None:
    known(await rest.post(AGENT, json={**START, "parent_conversation_id": NONE}), 404)


# Find


def fill(owner: User, count: int) -> None:
    """Store conversations that were created one way round and changed the other, two at a time."""
    now = timezone.now()
    Conversation.objects.bulk_create(
        Conversation(
            public_id=UUID(int=number + 1, version=4).hex,
            owner=owner,
            version=f"V{number % 2}",
            created_at=now - timedelta(seconds=number // 2),
            updated_at=now - timedelta(seconds=(count - number) // 2),
        )
        for number in range(count)
    )


async def pages(rest: httpx.AsyncClient, **query: Any) -> list[list[str]]:
    found: list[list[str]] = []
    page_id: str | None = None
    while True:
        more = {"page_id": page_id} if page_id else {}
        page = known(await rest.get(f"{AGENT}/search", params={**query, **more}))
        found.append([item["id"] for item in page["items"]])
        assert len(found) <= 300, "The list has no end."
        page_id = page["next_page_id"]
        if page_id is None:
            return found


SORT_ORDERS: list[tuple[str, Any, bool]] = [
    ("CREATED_AT", "created_at", False),
    ("CREATED_AT_DESC", "created_at", True),
    ("UPDATED_AT", "updated_at", False),
    ("UPDATED_AT_DESC", "updated_at", True),
]


async def test_pages_hold_each_conversation_once_in_each_order(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(fill, alice, 53)
    for limit, (sort_order, column, newest_first) in product([1, 2, 7, 52, 53, 100], SORT_ORDERS):
        with subtests.test(limit=limit, sort_order=sort_order, column=column):
            found = await pages(rest, limit=limit, sort_order=sort_order)
            rows = await astore.call(list, Conversation.objects.in_order(column, newest_first=newest_first))
            assert [*chain(*found)] == [str(UUID(row.public_id)) for row in rows]
            assert {len(page) for page in found[:-1]} <= {limit}


async def test_the_newest_comes_first_unless_another_order_is_asked_for(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(fill, alice, 5)
    assert await pages(rest) == await pages(rest, sort_order="CREATED_AT_DESC")


async def test_what_is_started_or_deleted_while_pages_are_read_moves_no_other(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(fill, alice, 10)
    (all_of_them,) = await pages(rest)
    first = known(await rest.get(f"{AGENT}/search?limit=4"))
    await started(rest)
    await rest.delete(f"{AGENT}/{all_of_them[2]}")
    second = known(await rest.get(f"{AGENT}/search?page_id={first['next_page_id']}"))
    assert [item["id"] for item in second["items"]] == all_of_them[4:]


WRONG_PAGES: list[str] = ["limit=0", "limit=101", "limit=x", "page_id=x", "page_id=MQ", "status=x"]


async def test_a_wrong_page_is_a_422(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for query in WRONG_PAGES:
        with subtests.test(query=query):
            known(await rest.get(f"{AGENT}/search?{query}"), 422)


async def test_conversations_are_found_and_counted_by_status(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(fill, alice, 5)

    def run(number: int, status: str) -> None:
        row = Conversation.objects.get(public_id=UUID(int=number + 1, version=4).hex)
        AgentLoop.objects.create(conversation=row, execution_status=status)

    for number, status in enumerate(["paused", "idle", "paused"]):
        await astore.call(run, number, status)
    counts = {
        status: known(await rest.get(f"{AGENT}/count?status={status}"))
        for status in ("idle", "paused", "running")
    }
    assert counts == {"idle": 3, "paused": 2, "running": 0}
    assert {len([*chain(*await pages(rest, status=status))]) for status in counts} == {3, 2, 0}
    assert known(await rest.get(f"{AGENT}/count")) == 5


def long_ones(owner: User, count: int) -> list[ConversationRef]:
    """Store conversations whose agents are so long that a page holds hardly any."""
    setup = agent_setups.NewSetup(agent={"kind": "Agent", "more": "x" * 1_000_000})
    return [agent_setups.create(owner, setup) for _ in range(count)]


async def test_long_setups_make_a_page_shorter_and_every_conversation_comes_once(
    alice: User, rest: httpx.AsyncClient
) -> None:
    made = await astore.call(long_ones, alice, 12)
    found = await pages(rest)
    assert [*chain(*found)] == [str(UUID(each.public_id)) for each in reversed(made)]
    assert [len(each) for each in found] == [5, 5, 2]


async def test_a_batch_of_long_setups_answers_each_id_in_its_place(
    alice: User, rest: httpx.AsyncClient
) -> None:
    made = await astore.call(long_ones, alice, 6)
    asked = [str(UUID(each.public_id)) for each in reversed(made)]
    found = known(await rest.get(AGENT, params={"ids": [*asked, asked[0]]}))
    assert [item["id"] for item in found] == [*asked, asked[0]]


def test_what_nobody_is_shown_is_not_read_for_a_list(alice: User) -> None:
    agent_setups.create(alice, agent_setups.NewSetup())
    browser = Browser()
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(f"{AGENT}/search").status_code == 200
    assert not any("sealed" in query["sql"] for query in captured)


async def test_a_batch_answers_each_id_in_its_place(
    talk: ConversationRef, bob: User, rest: httpx.AsyncClient
) -> None:
    bobs = await astore.call(creation.create, bob)
    asked = [NONE, HEX.upper(), bobs.public_id, ID]
    found = known(await rest.get(AGENT, params={"ids": asked}))
    assert [item and item["id"] for item in found] == [None, ID, None, ID]


async def test_a_batch_of_a_hundred_is_answered_and_one_more_refused(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert len(known(await rest.get(AGENT, params={"ids": [ID] * 100}))) == 100
    known(await rest.get(AGENT, params={"ids": [ID] * 101}), 400)


async def test_a_batch_without_ids_or_with_malformed_ones_is_a_422(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for query in ["", "?ids=talk", f"?ids={ID}&ids=", "?ids=%00"]:
        with subtests.test(query=query):
            known(await rest.get(f"{AGENT}{query}"), 422)


@pytest.mark.parametrize(
    ("path", "queries"),
    [
        ("/search", 3),
        ("/count", 2),
        ("?" + "&".join(f"ids={UUID(int=number + 1, version=4)}" for number in range(100)), 3),
    ],
)
def test_the_number_of_queries_does_not_grow_with_the_list(alice: User, path: str, queries: int) -> None:
    browser = Browser()
    browser.get(f"{AGENT}{path}")
    numbers = set()
    for count in (3, 97):
        Conversation.objects.all().delete()
        fill(alice, count)
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(f"{AGENT}{path}").status_code == 200
        numbers.add(len(captured))
    assert numbers == {queries}


# Change


async def test_a_conversation_is_renamed_and_tagged(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    assert known(await rest.patch(f"{AGENT}/{ID}", json={"title": "  New "})) == {"success": True}
    known(await rest.patch(f"{AGENT}/{ID}", json={"tags": {"a": "b"}, "of_tomorrow": 1}))
    found = known(await rest.get(f"{AGENT}/{ID}"))
    assert (found["title"], found["tags"]) == ("New", {"a": "b"})


WRONG_CHANGES: list[Any] = [{"title": " "}, {"title": "x" * 201}, {"tags": {"a": 1}}, [], None]


async def test_a_wrong_change_is_a_422(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body in WRONG_CHANGES:
        with subtests.test(body=body):
            known(await rest.patch(f"{AGENT}/{ID}", json=body), 422)


async def test_a_deleted_conversation_is_hidden_and_every_event_stays(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(f"{AGENT}/{ID}/events", json=said("hello")))
    assert known(await rest.delete(f"{AGENT}/{ID}")) == {"success": True}
    known(await rest.get(f"{AGENT}/{ID}"), 404)
    stored = await astore.call(reads.read_after, talk, -1)
    assert [event["text"] for event in stored] == [turn_events.SYSTEM_PROMPT, "hello"]


async def test_secrets_are_added_and_take_the_place_of_those_of_their_name(
    rest: httpx.AsyncClient,
) -> None:
    await started(rest, conversation_id=ID, secrets={"A": "1", "B": "2"})
    more = {"B": {"kind": "LookupSecret", "url": "https://a.b"}, "C": "3"}
    response = await rest.post(f"{AGENT}/{ID}/secrets", json={"secrets": more})
    assert known(response) == {"success": True}
    shown = known(await rest.get(f"{AGENT}/{ID}"))["secret_registry"]["secret_sources"]
    assert {name: source["kind"] for name, source in shown.items()} == {
        "A": "StaticSecret",
        "B": "LookupSecret",
        "C": "StaticSecret",
    }


@pytest.mark.parametrize(
    ("given", "more", "words"),
    [
        (
            {f"KEY_{number}": "x" for number in range(500)},
            [{f"MORE_{number}": "x" for number in range(start, start + 400)} for start in (0, 400)],
            "A conversation keeps 1000 secrets at the most, and would have 1302, with the keys of its agent.",
        ),
        (
            {"A": "x" * 200_000},
            [{"B": "x" * 200_000}],
            "The secrets of a conversation and the keys of its agent may have 300,000 bytes as JSON.",
        ),
    ],
)
async def test_secrets_that_are_added_again_and_again_are_bounded_and_those_before_stay(
    rest: httpx.AsyncClient, given: dict[str, str], more: list[dict[str, str]], words: str
) -> None:
    await started(rest, conversation_id=ID, secrets=given)
    answers = [await rest.post(f"{AGENT}/{ID}/secrets", json={"secrets": each}) for each in more]
    assert [each.status_code for each in answers] == [200] * (len(more) - 1) + [422]
    (problem,) = answers[-1].json()["detail"]
    assert (problem["loc"], problem["msg"]) == (["body", "secrets"], words)
    kept = known(await rest.get(f"{AGENT}/{ID}"))["secret_registry"]["secret_sources"]
    assert kept.keys() == set(given).union(*more[:-1])


async def test_a_start_with_too_many_bytes_of_secrets_is_a_422_and_starts_nothing(
    rest: httpx.AsyncClient,
) -> None:
    response = await rest.post(AGENT, json={**START, "secrets": {"A": "x" * 600_000, "B": "x" * 600_000}})
    assert known(response, 422)["detail"][0]["loc"] == ["body", "secrets"]
    assert await astore.call(Conversation.objects.count) == 0


@pytest.mark.parametrize(
    ("route", "body", "field", "value"),
    [
        *(
            ("confirmation_policy", {"policy": policy}, "confirmation_policy", policy)
            for policy in (
                {"kind": "AlwaysConfirm"},
                {"kind": "ConfirmRisky", "threshold": "HIGH", "confirm_unknown": True},
            )
        ),
        *(
            ("security_analyzer", {"security_analyzer": analyzer}, "security_analyzer", analyzer)
            for analyzer in ({"kind": "LLMSecurityAnalyzer"}, None)
        ),
    ],
)
async def test_policy_and_analyzer_are_stored_with_the_event_that_tells_of_them(
    talk: ConversationRef, rest: httpx.AsyncClient, route: str, body: Any, field: str, value: Any
) -> None:
    assert known(await rest.post(f"{AGENT}/{ID}/{route}", json=body)) == {"success": True}
    assert known(await rest.get(f"{AGENT}/{ID}"))[field] == value
    (event,) = known(await rest.get(f"{AGENT}/{ID}/events/search"))["items"]
    assert (event["kind"], event["key"], event["value"]) == ("ConversationStateUpdateEvent", field, value)


WRONG_BODIES: dict[str, tuple[str, Any]] = {
    "no analyzer": ("security_analyzer", {}),
    "an analyzer without a kind": ("security_analyzer", {"security_analyzer": {}}),
    "no policy": ("confirmation_policy", {}),
    "a policy that is a text": ("confirmation_policy", {"policy": "AlwaysConfirm"}),
    "no secrets": ("secrets", {}),
    "too short a title": ("generate_title", {"max_length": 0}),
    "too long a title": ("generate_title", {"max_length": 201}),
    "no question": ("ask_agent", {}),
    "no destination": ("navigate", {}),
    "a fork with an id that is none": ("fork", {"id": "talk"}),
    "a fork with a long title": ("fork", {"title": "x" * 201}),
    "no decision": ("events/respond_to_confirmation", {}),
    "no JSON": ("secrets", ...),
}


async def test_a_wrong_body_is_a_422(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, (route, body) in WRONG_BODIES.items():
        with subtests.test(name):
            content = "{" if body is ... else json.dumps(body)
            known(await rest.post(f"{AGENT}/{ID}/{route}", content=content), 422)


# Run


async def test_a_run_is_running_once_it_is_accepted_and_a_second_one_is_a_409(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(f"{AGENT}/{ID}/events", json=said("hold")))
    assert known(await rest.get(f"{AGENT}/{ID}"))["execution_status"] == "idle"
    assert known(await rest.post(f"{AGENT}/{ID}/run")) == {"success": True}
    assert known(await rest.get(f"{AGENT}/{ID}"))["execution_status"] == "running"
    assert known(await rest.post(f"{AGENT}/{ID}/run", json={}), 409)["detail"].startswith(
        "Conversation already running."
    )


@pytest.mark.parametrize("action", ["pause", "interrupt"])
async def test_a_run_is_paused(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient, action: str
) -> None:
    known(await rest.post(f"{AGENT}/{ID}/events", json=said("hold", run=True)))
    await stage.holding()
    known(await rest.post(f"{AGENT}/{ID}/{action}"))
    stage.go.set()
    await until_status(talk, "paused")
    assert known(await rest.get(f"{AGENT}/{ID}"))["execution_status"] == "paused"
    known(await rest.post(f"{AGENT}/{ID}/{action}"))


# Beside the log


async def test_a_title_is_made_from_what_was_said_first_and_not_stored(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(f"{AGENT}/{ID}/events", json=said("paint the house")))
    answers = [
        known(await rest.post(f"{AGENT}/{ID}/generate_title", json=body))["title"]
        for body in ({}, {"max_length": 8, "llm": None}, {"max_length": 2})
    ]
    assert answers == ["PAINT THE HOUSE", "PAINT...", ".."]
    assert known(await rest.get(f"{AGENT}/{ID}"))["title"] is None


async def test_without_a_message_there_is_no_title(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    known(await rest.post(f"{AGENT}/{ID}/generate_title"), 409)


async def test_a_question_is_answered_and_adds_no_event(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = known(await rest.post(f"{AGENT}/{ID}/ask_agent", json={"question": "Why?"}))
    assert answer == {"response": "  WHY?\n"}
    assert known(await rest.get(f"{AGENT}/{ID}/events/count")) == 0


async def test_an_agent_that_cannot_be_asked_is_a_502(
    talk: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.wires.v1.MuteAgent")
    known(await rest.post(f"{AGENT}/{ID}/ask_agent", json={"question": "Why?"}), 502)


async def test_the_final_response_is_what_the_agent_said_last(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert known(await rest.get(f"{AGENT}/{ID}/agent_final_response")) == {"response": ""}
    known(await rest.post(f"{AGENT}/{ID}/events", json=said("hello", run=True)))
    await until_said(talk, "answer to hello")
    assert known(await rest.get(f"{AGENT}/{ID}/agent_final_response")) == {"response": "answer to hello"}


async def test_a_condensation_is_asked_for_and_stored(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(f"{AGENT}/{ID}/condense"))
    events = known(await rest.get(f"{AGENT}/{ID}/events/search"))["items"]
    assert [event["kind"] for event in events] == ["CondensationRequest", "Condensation"]
    assert known(await rest.post(f"{AGENT}/{NONE}/condense"), 404) == {"detail": "Not Found"}


# Fork, navigate


async def test_a_fork_has_the_history_and_the_agent_and_is_idle(rest: httpx.AsyncClient) -> None:
    await started(rest, conversation_id=ID, secrets={"A": "1"}, max_iterations=7)
    known(await rest.post(f"{AGENT}/{ID}/events", json=said("hello")))
    fork = known(await rest.post(f"{AGENT}/{ID}/fork", json={"id": NONE, "title": "copy"}), 201)
    assert (fork["id"], fork["title"], fork["execution_status"]) == (NONE, "copy", "idle")
    assert (fork["forked_from_conversation_id"], fork["max_iterations"]) == (ID, 7)
    assert list(fork["secret_registry"]["secret_sources"]) == ["A"]
    histories = [(await rest.get(f"{AGENT}/{each}/events/search")).text for each in (ID, NONE)]
    assert histories[0] == histories[1]


async def test_a_long_fork_is_answered_when_it_is_whole_and_goes_on_if_that_takes_too_long(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversations.store.forks.AT_ONCE_EVENTS", 1)
    await started(rest, conversation_id=ID, secrets={"A": "1"})
    for text in ("one", "two"):
        known(await rest.post(f"{AGENT}/{ID}/events", json=said(text)))
    monkeypatch.setattr("convserver.api.v1.agent.steering.COPY_WAIT_S", 0.0)
    headers = {"Idempotency-Key": "a-fork"}
    late = known(await rest.post(f"{AGENT}/{ID}/fork", json={"id": NONE}, headers=headers), 503)
    assert "still being copied: 0 of" in late["detail"]
    assert known(await rest.get(f"{AGENT}/{NONE}"), 503) == late
    monkeypatch.undo()
    whole = known(await rest.post(f"{AGENT}/{ID}/fork", json={"id": NONE}, headers=headers), 201)
    assert (whole["id"], list(whole["secret_registry"]["secret_sources"])) == (NONE, ["A"])
    histories = [(await rest.get(f"{AGENT}/{each}/events/search")).text for each in (ID, NONE)]
    assert histories[0] == histories[1]


async def test_a_fork_through_an_event_ends_with_it(rest: httpx.AsyncClient) -> None:
    await started(rest, conversation_id=ID)
    for text in ("one", "two", "three"):
        known(await rest.post(f"{AGENT}/{ID}/events", json=said(text)))
    events = known(await rest.get(f"{AGENT}/{ID}/events/search"))["items"]
    body = {"from_event_id": events[2]["id"]}
    fork = known(await rest.post(f"{AGENT}/{ID}/fork", json=body), 201)
    found = known(await rest.get(f"{AGENT}/{fork['id']}/events/search"))["items"]
    assert found == events[:3]


async def test_a_fork_needs_a_free_id_and_an_event_that_is_there(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(f"{AGENT}/{ID}/fork", json={"id": ID}), 409)
    known(await rest.post(f"{AGENT}/{ID}/fork", json={"from_event_id": "none"}), 404)
    assert await astore.call(Conversation.objects.count) == 1


async def test_one_goes_to_an_event_of_the_history(rest: httpx.AsyncClient) -> None:
    await started(rest, conversation_id=ID)
    event_id = known(await rest.get(f"{AGENT}/{ID}/events/search"))["items"][0]["id"]
    for each in (event_id, None):
        found = known(await rest.post(f"{AGENT}/{ID}/navigate", json={"event_id": each}))
        assert found["leaf_event_id"] == each
    known(await rest.post(f"{AGENT}/{ID}/navigate", json={"event_id": "none"}), 404)


# The server


async def test_the_root_and_the_servers_information_are_the_same_json(rest: httpx.AsyncClient) -> None:
    answers = [known(await rest.get(path)) for path in ("/agent/", "/agent/server_info")]
    assert {frozenset(answer) for answer in answers} == {
        frozenset(
            {
                *("uptime", "idle_time", "title", "version", "docs", "redoc"),
                *("sdk_version", "convserver_version", "usable_tools"),
            }
        )
    }


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/agent/alive", {"status": "ok"}),
        ("/agent/health", "OK"),
        ("/agent/ready", {"status": "ready"}),
        ("/ready", {"status": "ready"}),
    ],
)
async def test_the_probes_answer_in_the_wires_words(
    rest: httpx.AsyncClient, path: str, answer: object
) -> None:
    assert known(await rest.get(path)) == answer


OF_A_WORKSPACE: list[tuple[str, object]] = [
    ("/git/changes//workspace/project", []),
    ("/git/changes?path=/workspace", []),
    ("/git/diff/workspace/a.py", {"modified": None, "original": None}),
    ("/git/diff?path=a.py", {"modified": None, "original": None}),
    ("/vscode/url", {"url": None}),
    ("/tools/", []),
]


async def test_what_is_asked_of_a_workspace_is_answered_with_nothing(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, answer in OF_A_WORKSPACE:
        with subtests.test(path=path, answer=answer):
            assert known(await rest.get(f"/agent/api{path}")) == answer
