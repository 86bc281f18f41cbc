"""Starting conversations over the V1 app face: all at once or not at all, told step by step, found later."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationRef, CreationParameters
from conversations.redaction.masking import MASK
from conversations.store import creation, deletion
from convserver.api.v1.app import start_tasks
from convserver.api.v1.app.shapes import AppConversationStartTask
from sessions_app import astore
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import AgentSetup, SecretKind, StartTask
from sessions_app.openhands_v1 import starts
from sessions_app.settings import run_options, user_settings
from tests.support.people.scripted_agent import manager, stage, until_said
from tests.support.wires.app_face import (
    CONVERSATIONS,
    EVENTS,
    HEX,
    ID,
    NONE,
    SANDBOX,
    STARTS,
    all_ids,
    answered,
    child_of,
    cost,
    create,
    repeated,
    said,
)
from tests.support.wires.v0 import MOMENT, NEW_ID

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

REQUEST: dict[str, Any] = {
    "sandbox_id": None,
    "conversation_id": None,
    "initial_message": None,
    "system_message_suffix": None,
    "processors": None,
    "llm_model": None,
    "selected_repository": None,
    "selected_branch": None,
    "git_provider": None,
    "title": None,
    "trigger": None,
    "pr_number": [],
    "parent_conversation_id": None,
    "agent_type": "default",
}


def task(**members: Any) -> dict[str, Any]:
    """Return a start as local mode shows it."""
    return {
        "id": NEW_ID,
        "created_by_user_id": None,
        "status": "READY",
        "detail": None,
        "app_conversation_id": None,
        "sandbox_id": None,
        "agent_server_url": None,
        "request": REQUEST,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        **members,
    }


async def started(rest: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """Start a conversation and return what became of that."""
    response = await rest.post(CONVERSATIONS, json=body)
    assert response.status_code == 200, response.text
    (found,) = await answered(rest, STARTS, ids=response.json()["id"])
    assert found is not None
    shown: dict[str, Any] = found
    return shown


async def one(rest: httpx.AsyncClient, conversation_id: str = ID) -> dict[str, Any]:
    (found,) = await answered(rest, CONVERSATIONS, ids=conversation_id)
    shown: dict[str, Any] = found
    return shown


async def row(conversation_id: str = HEX) -> Conversation:
    return await astore.call(Conversation.objects.get, public_id=conversation_id)


# What is answered


async def test_a_start_is_answered_as_working_and_found_ready(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(CONVERSATIONS, json={"conversation_id": ID})
    request = REQUEST | {"conversation_id": HEX}
    assert answer.json() == task(status="WORKING", request=request)
    (found,) = await answered(rest, STARTS, ids=answer.json()["id"])
    assert found == task(
        app_conversation_id=HEX,
        sandbox_id=SANDBOX,
        agent_server_url="http://localhost/agent",
        request=request,
    )


async def test_a_streamed_start_tells_each_step_between_brackets(rest: httpx.AsyncClient) -> None:
    async with rest.stream("POST", f"{CONVERSATIONS}/stream-start", json={"conversation_id": ID}) as answer:
        text = (await answer.aread()).decode()
    lines = text.split("\n")
    assert (lines[0], answer.headers["content-type"]) == ("[", "application/json")
    steps = [json.loads(line.removesuffix(",").removesuffix("]")) for line in lines[1:]]
    assert text == "[\n" + ",\n".join(line.removesuffix(",").removesuffix("]") for line in lines[1:]) + "]"
    assert [step["status"] for step in steps] == [
        "WORKING",
        "WAITING_FOR_SANDBOX",
        "STARTING_CONVERSATION",
        "READY",
    ]
    assert [step["sandbox_id"] for step in steps] == [None, SANDBOX, SANDBOX, SANDBOX]
    assert [step["app_conversation_id"] for step in steps] == [None, None, None, HEX]
    url = "http://localhost/agent"
    assert [step["agent_server_url"] for step in steps] == [None, None, url, url]
    assert json.loads(text)[-1] == (await answered(rest, STARTS, ids=steps[0]["id"]))[0]


async def test_each_step_leaves_as_a_piece_of_its_own() -> None:
    step = AppConversationStartTask.model_validate(
        task(id=HEX, created_at=datetime.now(UTC), updated_at=datetime.now(UTC))
    )
    pieces = [piece async for piece in start_tasks._streamed([step.model_dump(mode="json")] * 2)]
    text = step.model_dump_json().encode()
    assert pieces == [b"[\n", text, b",\n" + text, b"]"]


async def test_a_streamed_start_that_fails_ends_with_the_error(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(create, alice)
    answer = await rest.post(f"{CONVERSATIONS}/stream-start", json={"conversation_id": ID})
    steps = answer.json()
    assert [step["status"] for step in steps] == ["WORKING", "ERROR"]
    assert steps[-1]["detail"] == f"You already have a conversation {HEX}. Use it, or choose another id."


# What is made


async def test_everything_that_a_start_says_is_kept(rest: httpx.AsyncClient) -> None:
    body = {
        "conversation_id": ID,
        "title": "Trip",
        "trigger": "resolver",
        "pr_number": [7],
        "llm_model": "openai/gpt-x",
        "system_message_suffix": "Be brief.",
        "processors": [{"kind": "SetTitleCallbackProcessor"}, {"kind": "LoggingCallbackProcessor", "x": 1}],
        "agent_type": "plan",
        "plugins": ["of tomorrow"],
    }
    found = await started(rest, **body)
    shown = await one(rest)
    assert found["request"]["processors"] == [
        {"kind": "SetTitleCallbackProcessor"},
        {"kind": "LoggingCallbackProcessor"},
    ]
    names = ("title", "trigger", "pr_number", "llm_model")
    assert [shown[name] for name in names] == [body[name] for name in names]
    pk = (await row()).pk
    setup = await astore.call(AgentSetup.objects.get, pk=pk)
    parameters = await astore.call(CreationParameters.objects.get, pk=pk)
    assert setup.shown_agent is not None
    assert setup.shown_agent["agent_context"] == {"system_message_suffix": "Be brief."}
    assert parameters.parameters["agent_type"] == "plan"


@pytest.mark.parametrize("run", [False, True])
async def test_a_first_message_is_answered_whatever_it_says_of_running(
    run: bool, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await started(rest, conversation_id=ID, initial_message={**said("hello"), "run": run})
    await until_said((await row()).ref, "answer to hello")


async def test_a_start_without_a_message_starts_no_agent(
    manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await started(rest, conversation_id=ID)
    assert manager.get_agent_session(HEX) is None
    assert (await one(rest))["sandbox_status"] == "RUNNING"


async def test_a_conversation_begins_with_the_system_prompt_and_then_the_message(
    rest: httpx.AsyncClient,
) -> None:
    await started(rest, conversation_id=ID, initial_message=said("hello"))
    items = (await answered(rest, f"{EVENTS}/search", conversation_id__eq=ID, limit=2))["items"]
    assert [item["kind"] for item in items] == ["SystemPromptEvent", "MessageEvent"]


async def test_a_child_inherits_what_its_start_does_not_say(alice: User, rest: httpx.AsyncClient) -> None:
    columns = {"repository": "owner/name", "branch": "main", "provider": "github"}
    parent = await astore.call(create, alice, llm_model="recorded/model", **columns)
    await astore.call(run_options.change, parent, {"model": "openai/gpt-x"})
    child = await started(rest, parent_conversation_id=ID, agent_type="plan")
    shown = await one(rest, child["app_conversation_id"])
    inherited = ("selected_repository", "selected_branch", "git_provider", "llm_model")
    assert [shown[name] for name in inherited] == [*columns.values(), "openai/gpt-x"]
    assert (shown["parent_conversation_id"], child["sandbox_id"], shown["sandbox_id"]) == (
        HEX,
        SANDBOX,
        SANDBOX,
    )
    assert (await one(rest))["sub_conversation_ids"] == [child["app_conversation_id"]]


async def test_a_users_model_and_wish_to_confirm_are_taken_over(alice: User, rest: httpx.AsyncClient) -> None:
    values = {"llm_model": "openai/gpt-x", "confirmation_mode": True}
    await astore.call(user_settings.change_settings, alice.pk, values, secrets={})
    await started(rest, conversation_id=ID)
    setup = await astore.call(AgentSetup.objects.get, pk=(await row()).pk)
    assert (await one(rest))["llm_model"] == "openai/gpt-x"
    assert setup.confirmation_policy == {"kind": "AlwaysConfirm"}


async def test_odd_texts_of_a_message_can_be_shown_again(rest: httpx.AsyncClient) -> None:
    body = '{"initial_message": {"content": [{"type": "text", "text": "a\\u0000b\\ud800", "x": [1]}]}}'
    answer = await rest.post(CONVERSATIONS, content=body)
    shown = answer.json()["request"]["initial_message"]
    assert shown == {"role": "user", "content": [{"type": "text", "text": "a\ufffdb\ufffd"}], "run": False}


# What cannot be made


LONG_TEXTS: list[tuple[str, Any, str]] = [
    ("system_message_suffix", "é" * 524_288, "`system_message_suffix` may have 1048576 bytes as JSON"),
    ("sandbox_id", "x" * 501, "at most 500 characters"),
    ("processors", [{"kind": "x" * 501}], "at most 500 characters"),
]


@pytest.mark.one_engine
async def test_a_text_of_a_start_that_is_too_long_is_a_422_that_names_it_and_the_bound(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, value, bound in LONG_TEXTS:
        with subtests.test(name=name, value=value):
            response = await rest.post(CONVERSATIONS, json={name: value})
            assert response.status_code == 422, response.text
            (problem,) = response.json()["detail"]
            assert problem["loc"][1] == name
            assert bound in problem["msg"]


@pytest.mark.parametrize("whose", ["nobody's", "bob's", "deleted", "of the other wire"])
async def test_a_parent_that_is_not_there_is_not_found_and_nothing_is_stored(
    whose: str, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    match whose:
        case "bob's":
            await astore.call(create, bob, NONE)
        case "deleted":
            await astore.call(deletion.soft_delete, await astore.call(create, alice, NONE))
        case "of the other wire":
            await astore.call(creation.create, alice, conversation_id=NONE)
    for path in (CONVERSATIONS, f"{CONVERSATIONS}/stream-start"):
        answer = await rest.post(path, json={"parent_conversation_id": NONE})
        assert (answer.status_code, answer.json()) == (404, {"detail": "unknown_app_conversation"})
    assert await answered(rest, f"{STARTS}/count") == 0


async def test_an_agent_that_lacks_a_model_is_an_error_in_words(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_tasks, "needs_model", lambda agent: True)
    found = await started(rest, conversation_id=ID)
    assert found == task(
        status="ERROR",
        detail="No settings yet. Choose a model first.",
        request=REQUEST | {"conversation_id": HEX},
    )
    assert await answered(rest, CONVERSATIONS, ids=ID) == [None]


async def test_a_repository_that_nothing_opens_is_an_error_in_words(rest: httpx.AsyncClient) -> None:
    found = await started(rest, conversation_id=ID, selected_repository="owner/name")
    assert (found["status"], found["detail"]) == ("ERROR", "Git provider token required. (such as GitHub).")


@pytest.mark.needs_engine
async def test_a_start_that_fails_halfway_leaves_nothing(
    alice: User, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **columns: Any) -> StartTask:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(StartTask.objects, "create", fails)
    assert (await rest.post(CONVERSATIONS, json={"initial_message": said("hi")})).status_code == 500
    assert await astore.call(Conversation.objects.count) == 0


async def test_the_error_of_a_taken_id_tells_no_stranger_whose_it_is(
    bob: User, alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(create, bob)
    assert (await started(rest, conversation_id=ID))["detail"] == f"The conversation id {HEX} is taken."


# What is found


def fill(owner: User, count: int, *, conversation: ConversationRef | None = None) -> list[StartTask]:
    """Store many starts, two of which were always asked for at the same moment."""
    start = datetime(2025, 11, 1, tzinfo=UTC)
    return StartTask.objects.bulk_create(
        StartTask(
            task_id=uuid4().hex,
            user=owner,
            conversation_id=conversation.pk if conversation else None,
            status=starts.READY,
            created_at=start + timedelta(seconds=number // 2),
        )
        for number in range(count)
    )


@pytest.mark.needs_engine
@pytest.mark.parametrize("order", ["CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC"])
@pytest.mark.sampled(1)
async def test_every_start_comes_once_whatever_the_limit(
    order: str, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    expected = [each.task_id for each in await astore.call(fill, alice, 101)]
    await astore.call(fill, bob, 3)
    if order.endswith("_DESC"):
        expected.reverse()
    for limit in (1, 2, 3, 7, 50, 99, 100):
        assert await all_ids(rest, f"{STARTS}/search", sort_order=order, limit=limit) == expected


async def test_long_starts_make_a_page_shorter_and_a_batch_holds_them_all(rest: httpx.AsyncClient) -> None:
    made = [await started(rest, initial_message=said("x" * 1_500_000)) for _ in range(4)]
    found = await answered(rest, f"{STARTS}/search")
    assert [each["id"] for each in found["items"]] == [each["id"] for each in made[:0:-1]]
    assert await all_ids(rest, f"{STARTS}/search") == [each["id"] for each in reversed(made)]
    assert await answered(rest, STARTS, ids=[each["id"] for each in made]) == made


@pytest.mark.needs_engine
async def test_starts_are_found_by_conversation_and_by_time(alice: User, rest: httpx.AsyncClient) -> None:
    talk = await astore.call(create, alice)
    own = await astore.call(fill, alice, 4, conversation=talk)
    await astore.call(fill, alice, 4)
    assert await all_ids(rest, f"{STARTS}/search", conversation_id__eq=ID) == [
        each.task_id for each in reversed(own)
    ]
    counts = [
        await answered(rest, f"{STARTS}/count", **query)
        for query in (
            {},
            {"conversation_id__eq": HEX},
            {"created_at__gte": "2025-11-01T00:00:01Z"},
            {"created_at__gte": "2025-11-01T00:00:01", "conversation_id__eq": ID},
        )
    ]
    assert counts == [8, 4, 4, 2]


async def test_a_strangers_start_is_unknown(alice: User, bob: User, rest: httpx.AsyncClient) -> None:
    (theirs,) = await astore.call(fill, bob, 1)
    own = await started(rest)
    found = await answered(rest, STARTS, ids=[theirs.task_id, own["id"], NONE])
    assert [each and each["id"] for each in found] == [None, own["id"], None]


@pytest.mark.needs_engine
def test_starts_cost_the_same_however_many_there_are(alice: User) -> None:
    talk = create(alice)
    first = fill(alice, 1, conversation=child_of(talk, alice))
    paths = [f"{STARTS}/search", f"{STARTS}/count", f"{STARTS}?ids={first[0].task_id}"]
    few = [cost(path) for path in paths]
    many = fill(alice, 150, conversation=talk)
    paths[2] = f"{STARTS}?{repeated('ids', [each.task_id for each in many[:100]])}"
    assert [cost(path) for path in paths] == few
    assert max(few) <= 5


async def test_a_secret_in_what_is_asked_for_is_not_kept_with_the_start(
    alice: User, rest: httpx.AsyncClient
) -> None:
    secret = "a-secret-of-the-user's"
    await astore.call(user_settings.store_secret, alice.pk, SecretKind.CUSTOM, name="KEY", value=secret)
    found = await started(rest, initial_message=said(f"Use {secret}."), system_message_suffix=secret)
    hidden = found["request"]
    assert hidden["initial_message"]["content"] == said(f"Use {MASK}.")["content"]
    assert hidden["system_message_suffix"] == MASK
    row = await astore.call(StartTask.objects.get)
    assert secret not in json.dumps(row.request)


async def test_a_secret_is_not_kept_with_a_start_that_fails(alice: User, rest: httpx.AsyncClient) -> None:
    secret = "a-secret-of-the-user's"
    await astore.call(user_settings.store_secret, alice.pk, SecretKind.CUSTOM, name="KEY", value=secret)
    await astore.call(create, alice)
    found = await started(rest, conversation_id=ID, title=f"Use {secret}")
    assert (found["status"], found["request"]["title"]) == ("ERROR", f"Use {MASK}")
