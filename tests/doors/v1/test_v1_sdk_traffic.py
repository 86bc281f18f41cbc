"""What scripts with the V1 client send, in their order: of the first release, of the newest, as recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.settings import agent_setups
from tests.support.data.events import event
from tests.support.people.scripted_agent import until_status
from tests.support.wires.v1 import AGENT, ID, START, known, said
from tests.support.wires.v1_wire import require_strict

pytestmark = pytest.mark.one_engine  # and on two servers, which are on PostgreSQL

RECORDED = Path(__file__).parents[2] / "data" / "openhands-v1"
RECORDED_ID = "3c294d95-9ff6-4d2d-9c53-0a5849f2c4a0"
EXCHANGES = [json.loads(line) for line in (RECORDED / "rest.jsonl").read_text("utf-8").splitlines()]
READ_AT = 26
"""So many events stood when the recording's reader looked at pages of a few."""
NEWEST_START: dict[str, Any] = {
    **START,
    "initial_message": None,
    "max_iterations": 500,
    "stuck_detection": True,
    "tool_module_qualnames": {"terminal": "openhands.tools.terminal"},
    "agent_definitions": [],
    "plugins": None,
    "hook_config": None,
    "client_tools": [],
    "tags": {},
    "observability_metadata": {},
    "user_id": None,
    "worktree": False,
    "autotitle": True,
}


class Script:
    """A script's client: it asks what it must, and takes only what it can."""

    def __init__(self, rest: httpx.AsyncClient, conversation_id: str) -> None:
        self.rest = rest
        self.at = f"{AGENT}/{conversation_id}"
        self.events: list[dict[str, Any]] = []

    async def read_history(self) -> None:
        """Read all pages, and merge what they hold by id, ordered by time."""
        page_id: str | None = None
        known_ids = {each["id"] for each in self.events}
        while True:
            params: dict[str, Any] = {"limit": 100, **({"page_id": page_id} if page_id else {})}
            page = known(await self.rest.get(f"{self.at}/events/search", params=params))
            self.events += [each for each in page["items"] if each["id"] not in known_ids]
            self.events.sort(key=lambda each: str(each["timestamp"]))
            page_id = page["next_page_id"]
            if not page_id:
                return

    async def post(self, path: str, body: Any = None) -> Any:
        return known(await self.rest.post(f"{self.at}/{path}", json=body))

    async def state(self) -> Any:
        return known(await self.rest.get(self.at))

    async def run(self) -> str:
        """Ask for a run and poll, as newer clients do, until it is over; return how it ended."""
        assert (await self.rest.post(f"{self.at}/run")).status_code in (200, 201, 204, 409)
        return await self.ended()

    async def ended(self) -> str:
        """Poll until the run is over; return how it ended."""
        for _ in range(1000):
            status: str = (await self.state())["execution_status"]
            if status != "running":
                return status
        raise AssertionError("The run has no end.")

    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.events]


async def test_a_script_with_the_first_release_lives_through_a_conversation(rest: httpx.AsyncClient) -> None:
    body = {**START, "initial_message": None, "max_iterations": 500, "stuck_detection": True}
    script = Script(rest, known(await rest.post(AGENT, json=body), 201)["id"])
    await script.read_history()
    await script.post("secrets", {"secrets": {"TOKEN": "a-text"}})
    await script.post("events", said("hello"))
    await script.post("run", {})
    conversation = await astore.call(lambda: Conversation.objects.get().ref)
    await until_status(conversation, "finished")
    await script.read_history()
    for each in script.events:
        require_strict(each)
    assert script.kinds().count("MessageEvent") == 2
    state = await script.state()
    assert all(
        state[name] is not None
        for name in ("execution_status", "confirmation_policy", "agent", "workspace", "persistence_dir")
    )
    assert await script.post("generate_title", {"max_length": 50, "llm": None}) == {"title": "hello"}
    assert (await script.post("ask_agent", {"question": "Why?"}))["response"]
    await script.post("events/respond_to_confirmation", {"accept": False, "reason": "no"})
    await script.post("pause")


async def test_a_second_process_attaches_by_id_and_reads_the_same(rest: httpx.AsyncClient) -> None:
    first = Script(rest, known(await rest.post(AGENT, json=START), 201)["id"])
    await first.post("events", said("hello"))
    await first.run()
    await first.read_history()
    second = Script(rest, (await first.state())["id"])
    assert (await second.state())["agent"]["kind"] == START["agent"]["kind"]
    await second.read_history()
    assert second.events == first.events


async def test_a_script_with_the_newest_release_lives_through_a_conversation(
    rest: httpx.AsyncClient,
) -> None:
    known(await rest.get(f"{AGENT}/{ID}"), 404)
    known(await rest.post(AGENT, json={**NEWEST_START, "conversation_id": ID}), 201)
    script = Script(rest, ID)
    await script.read_history()
    await script.read_history()  # as it does once its socket is there
    await script.post("secrets", {"secrets": {"TOKEN": "a-text"}})
    await script.post("events", {**said("hello"), "sender": "me"})
    assert await script.run() == "finished"
    await script.post("events", {**said("and again"), "sender": "me"})
    assert await script.run() == "finished"
    await script.read_history()
    stored = known(await rest.get(f"{AGENT}/{ID}/events/search"))["items"]
    assert script.events == stored
    assert [each["timestamp"] for each in stored] == sorted({each["timestamp"] for each in stored})
    for each in stored:
        require_strict(each)
    answer = known(await rest.get(f"{AGENT}/{ID}/agent_final_response"))["response"]
    assert answer == "You said: and again"
    known(await rest.get(f"{AGENT}/{ID}", params={"include_skills": "false"}))


async def test_the_system_prompt_is_there_at_the_start_for_the_first_release_alone(
    rest: httpx.AsyncClient,
) -> None:
    starts = (START, {**START, "plugins": None}, NEWEST_START)
    scripts = [Script(rest, known(await rest.post(AGENT, json=start), 201)["id"]) for start in starts]
    for script in scripts:
        await script.read_history()
    assert [script.kinds() for script in scripts] == [["SystemPromptEvent"], [], []]


@pytest.mark.parametrize("first", ["events", "run"])
async def test_the_system_prompt_comes_once_before_what_a_newer_script_begins_with(
    rest: httpx.AsyncClient, first: str
) -> None:
    script = Script(rest, known(await rest.post(AGENT, json=NEWEST_START), 201)["id"])
    await script.post("confirmation_policy", {"policy": {"kind": "NeverConfirm"}})
    await script.post(first, said("hello"))
    await script.post("events", said("and again"))
    await script.read_history()
    assert script.kinds()[:2] == ["ConversationStateUpdateEvent", "SystemPromptEvent"]
    assert script.kinds().count("SystemPromptEvent") == 1


async def test_a_first_message_of_a_start_comes_after_the_system_prompt(rest: httpx.AsyncClient) -> None:
    body = {**NEWEST_START, "initial_message": said("hello")}
    script = Script(rest, known(await rest.post(AGENT, json=body), 201)["id"])
    await script.read_history()
    assert script.kinds()[:2] == ["SystemPromptEvent", "MessageEvent"]


async def test_a_script_that_deletes_at_its_end_finds_its_history_when_it_starts_again(
    rest: httpx.AsyncClient,
) -> None:
    first = Script(rest, ID)
    known(await rest.post(AGENT, json={**NEWEST_START, "conversation_id": ID}), 201)
    await first.post("events", said("hello"))
    await first.run()
    await first.read_history()
    known(await rest.delete(f"{AGENT}/{ID}"))
    known(await rest.get(f"{AGENT}/{ID}"), 404)
    known(await rest.post(AGENT, json={**NEWEST_START, "conversation_id": ID}))
    again = Script(rest, ID)
    await again.read_history()
    assert again.events[: len(first.events)] == first.events


# The recording


def recorded_events() -> Iterator[str]:
    for path in sorted(RECORDED.glob("conversation/*/events/*.json")):
        yield path.read_text("utf-8")


@pytest.fixture
def recorded(alice: User) -> ConversationRef:
    """The recorded conversation as it stood when it was read by pages of a few."""
    conversation = agent_setups.create(alice, agent_setups.NewSetup(), conversation_id=RECORDED_ID)
    texts = [text for text, _ in zip(recorded_events(), range(READ_AT), strict=False)]
    writes.append(conversation, [event(raw=text, event_id=json.loads(text)["id"]) for text in texts])
    return conversation


def is_read(exchange: dict[str, Any]) -> bool:
    """Say whether an exchange looks at the history that stood at READ_AT."""
    is_history = exchange["query"] == "limit=100"
    return exchange["method"] == "GET" and "/events/" in exchange["path"] and not is_history


def test_the_recording_reads_and_writes() -> None:
    assert sum(map(is_read, EXCHANGES)) == 22
    assert {exchange["method"] for exchange in EXCHANGES} == {"GET", "POST", "PATCH"}


async def test_what_the_recording_reads_is_answered_event_for_event(
    recorded: ConversationRef, rest: httpx.AsyncClient
) -> None:
    page_ids: dict[str, str] = {}
    for exchange in filter(is_read, EXCHANGES):
        query = dict(httpx.QueryParams(exchange["query"]))
        if "page_id" in query:
            query["page_id"] = page_ids[query["page_id"]]
        path = exchange["path"].replace("/api/", "/agent/api/", 1)
        answer = known(await rest.get(path, params=query), exchange["status"])
        assert names(answer) == names(exchange["resp_body"]), exchange["path"]
        if isinstance(answer, dict) and answer.get("next_page_id"):
            page_ids[exchange["resp_body"]["next_page_id"]] = answer["next_page_id"]


def names(body: Any) -> Any:
    """Return what of an answer is the same whoever gives it: no nulls, cursors and words for people."""
    match body:
        case {"items": items, "next_page_id": next_page_id}:
            return [item["id"] for item in items], next_page_id is None
        case {"detail": [{"type": str(kind), "loc": loc, "input": given}]}:
            return kind, loc, given
        case dict():
            return {name: names(value) for name, value in body.items() if value is not None}
        case list():
            return [names(value) for value in body]
    return body


async def test_what_the_recording_does_is_answered_with_its_status_and_its_members(
    rest: httpx.AsyncClient,
) -> None:
    conversation_id = RECORDED_ID
    for exchange in EXCHANGES:
        if is_read(exchange):
            continue
        path = exchange["path"].replace("/api/", "/agent/api/", 1).replace(RECORDED_ID, conversation_id)
        if path.endswith("/run"):
            await over(rest, path.removesuffix("/run"))
        answer = known(
            await rest.request(
                exchange["method"],
                f"{path}?{exchange['query']}",
                json=exchange["req_body"],
                headers={"x-session-api-key": exchange["req_headers"]["x-session-api-key"]},
            ),
            exchange["status"],
        )
        assert answer.keys() == exchange["resp_body"].keys(), exchange["path"]
        if exchange["path"] == "/api/conversations":
            conversation_id = answer["id"]


async def over(rest: httpx.AsyncClient, path: str) -> None:
    for _ in range(1000):
        if known(await rest.get(path))["execution_status"] != "running":
            return
