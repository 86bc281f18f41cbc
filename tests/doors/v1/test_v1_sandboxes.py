"""Sandboxes, one for each family of V1 conversations: their ids, whether they run, pausing and resuming."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import Conversation, ConversationRef
from conversations.store import creation, deletion
from sessions_app import astore
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import AgentLoop, ApiToken
from sessions_app.openhands_v1 import sandboxes, steering
from sessions_app.openhands_v1.sandboxes import SandboxStatus
from tests.support.people.scripted_agent import ask, manager, stage, until_said
from tests.support.wires.app_face import (
    APP,
    CONVERSATIONS,
    HEX,
    ID,
    SANDBOX,
    SANDBOXES,
    all_ids,
    answered,
    child_of,
    cost,
    create,
    repeated,
)
from tests.support.wires.v0 import MOMENT, Matching

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

INFO = f"/api/conversations/{ID}"


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return create(alice)


def sandbox(**members: Any) -> dict[str, Any]:
    """Return the sandbox of a conversation that nobody has started, as local mode shows it."""
    return {
        "id": SANDBOX,
        "created_by_user_id": None,
        "sandbox_spec_id": "convserver",
        "status": "RUNNING",
        "session_api_key": None,
        "exposed_urls": None,
        "created_at": MOMENT,
        **members,
    }


async def statuses(rest: httpx.AsyncClient) -> tuple[str, str, str]:
    """Return what the sandbox, the conversation and its V0 info say."""
    (found,) = await answered(rest, SANDBOXES, id=SANDBOX)
    (conversation,) = await answered(rest, CONVERSATIONS, ids=ID)
    info = await answered(rest, INFO)
    return found["status"], conversation["sandbox_status"], info["status"]


# Ids


@pytest.mark.parametrize(
    ("public_id", "sandbox_id"),
    [
        (ID, SANDBOX),
        ("00c6d34a-ca9d-4b3d-bbef-aed95f43880f", "011SrX4knBXeF2udOygjeoR"),
        ("0" * 32, "0G"),
        ("f" * 32, "7n42DGM5Tflk9n8mt7Fhc7"),
    ],
)
def test_a_sandboxs_id_is_its_conversations_in_base_62(public_id: str, sandbox_id: str) -> None:
    assert sandboxes.id_of(public_id) == sandbox_id
    assert sandboxes.public_id_in(sandbox_id) == UUID(public_id).hex


@given(st.uuids() | st.integers(0, 2**40).map(lambda number: UUID(int=number)))
def test_every_id_is_found_again_in_its_sandboxs(found: UUID) -> None:
    assert sandboxes.public_id_in(sandboxes.id_of(found.hex) or "") == found.hex


@given(
    st.text(max_size=30)
    | st.text("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", max_size=30)
)
def test_no_other_text_is_a_sandboxs_id(text: str) -> None:
    public_id = sandboxes.public_id_in(text)
    assert public_id is None or sandboxes.id_of(public_id) == text


@pytest.mark.one_engine
async def test_a_text_that_is_no_sandboxs_id_is_null_and_not_found(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for text in ["", "talk", "0", "z" * 22, "00" + SANDBOX, "é", "a" * 5000, "null", "a\0"]:
        with subtests.test(text=text):
            if "\0" not in text:
                assert await answered(rest, SANDBOXES, id=text) == [None]
            if text:
                path = f"{SANDBOXES}/{text.replace(chr(0), '%00')}/pause"
                assert (await rest.post(path)).status_code == 404


# Whether it runs

STATUSES: list[tuple[dict[str, Any], SandboxStatus, str, str | None]] = [
    ({}, SandboxStatus.RUNNING, "RUNNING", "STATUS$READY"),
    ({"status": "starting"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$READY"),
    ({"status": "running"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$READY"),
    ({"status": "running", "execution_status": "error"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$ERROR"),
    ({"status": "running", "execution_status": "stuck"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$ERROR"),
    ({"status": "running", "execution_status": "paused"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$READY"),
    ({"status": "stopped"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$READY"),
    ({"status": "stopped", "ended_by": "interrupted"}, SandboxStatus.RUNNING, "RUNNING", "STATUS$READY"),
    ({"status": "stopped", "ended_by": "stopped"}, SandboxStatus.PAUSED, "STOPPED", None),
    ({"status": "stopped", "ended_by": "crowded_out"}, SandboxStatus.PAUSED, "STOPPED", None),
    ({"status": "stopped", "ended_by": "idle"}, SandboxStatus.PAUSED, "STOPPED", None),
    ({"status": "stopped", "ended_by": "stopped", "asked": 3}, SandboxStatus.STARTING, "STARTING", None),
    (
        {"status": "stopped", "ended_by": "stopped", "asked": 3, "execution_status": "paused"},
        SandboxStatus.PAUSED,
        "STOPPED",
        None,
    ),
    (
        {"status": "stopped", "ended_by": "idle", "asked": 3, "execution_status": "waiting_for_confirmation"},
        SandboxStatus.PAUSED,
        "STOPPED",
        None,
    ),
    (
        {
            "status": "stopped",
            "ended_by": "idle",
            "asked": 3,
            "execution_status": "waiting_for_confirmation",
            "decision": False,
        },
        SandboxStatus.STARTING,
        "STARTING",
        None,
    ),
    ({"status": "error", "ended_by": "failed"}, SandboxStatus.ERROR, "ERROR", None),
]


@pytest.mark.needs_engine
@pytest.mark.parametrize(("columns", "status", "shim", "runtime_status"), STATUSES, ids=str)
async def test_a_status_is_read_off_the_loop_and_every_door_agrees(
    columns: dict[str, Any],
    status: SandboxStatus,
    shim: str,
    runtime_status: str | None,
    talk: ConversationRef,
    rest: httpx.AsyncClient,
) -> None:
    loop = dict(columns)
    asked = loop.pop("asked", -1)
    await astore.call(Conversation.objects.filter(pk=talk.pk).update, asked_through=asked)
    if loop:
        await astore.call(AgentLoop.objects.create, conversation_id=talk.pk, **loop)
    assert await statuses(rest) == (status, status, shim)
    info = await answered(rest, INFO)
    (shown,) = await answered(rest, CONVERSATIONS, ids=ID)
    assert (info["runtime_status"], info["url"]) == (runtime_status, shown["conversation_url"])
    execution_status = loop.get("execution_status", "idle")
    assert shown["execution_status"] == (execution_status if status == "RUNNING" else None)


async def test_a_sandbox_is_missing_after_the_deletion_of_its_conversation_only(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(deletion.soft_delete, talk)
    assert await answered(rest, SANDBOXES, id=SANDBOX) == [sandbox(status="MISSING")]
    answers = [await rest.post(f"{SANDBOXES}/{SANDBOX}/{verb}") for verb in ("pause", "resume")]
    assert [each.status_code for each in answers] == [404, 404]
    assert await all_ids(rest, f"{SANDBOXES}/search") == []


# Pausing and resuming


async def test_what_is_paused_stops_for_every_door_and_what_is_resumed_is_there_at_once(
    talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await ask(talk, "hello")
    await until_said(talk, "answer to hello")
    paused = await rest.post(f"{SANDBOXES}/{SANDBOX}/pause", json={})
    assert (paused.status_code, paused.json()) == (200, {"success": True})
    assert await statuses(rest) == ("PAUSED", "PAUSED", "STOPPED")
    assert manager.get_agent_session(ID) is None
    resumed = await rest.post(f"{SANDBOXES}/{SANDBOX}/resume", json={})
    assert (resumed.status_code, resumed.json()) == (200, {"success": True})
    assert await statuses(rest) == ("RUNNING", "RUNNING", "RUNNING")
    assert manager.get_agent_session(ID) is not None


@pytest.mark.parametrize("path", [f"{SANDBOXES}/{SANDBOX}/pause", f"{INFO}/stop"])
async def test_also_what_never_ran_is_stopped_by_either_door_and_stays_so(
    path: str, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for _ in range(2):
        assert (await rest.post(path)).status_code == 200
        assert await statuses(rest) == ("PAUSED", "PAUSED", "STOPPED")


async def test_a_pause_stops_the_whole_family_and_a_delete_of_the_sandbox_does_no_more(
    alice: User, talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    for method, path in (("POST", f"{SANDBOXES}/{SANDBOX}/pause"), ("DELETE", f"{SANDBOXES}/{SANDBOX}")):
        for each in (talk, child):
            await manager.maybe_start_agent_loop(each)
        assert (await rest.request(method, path)).json() == {"success": True}
        assert await statuses(rest) == ("PAUSED", "PAUSED", "STOPPED")
        assert [manager.get_agent_session(each.public_id) for each in (talk, child)] == [None, None]
    found = await answered(rest, CONVERSATIONS, ids=[ID, child.public_id])
    assert [each["sandbox_status"] for each in found] == ["PAUSED", "PAUSED"]


async def test_a_sandbox_runs_as_long_as_one_of_its_conversations_does(
    alice: User, talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    await rest.post(f"{SANDBOXES}/{SANDBOX}/pause")
    await manager.maybe_start_agent_loop(child)
    assert (await statuses(rest))[:2] == ("RUNNING", "PAUSED")


@pytest.mark.needs_engine
async def test_a_resume_starts_no_more_loops_than_the_user_may_have(
    alice: User,
    talk: ConversationRef,
    manager: ConversationManager,
    configured: Any,
    rest: httpx.AsyncClient,
) -> None:
    configured(max_concurrent=2)
    children = [await astore.call(child_of, talk, alice) for _ in range(3)]
    await rest.post(f"{SANDBOXES}/{SANDBOX}/resume")
    there = [manager.get_agent_session(each.public_id) is not None for each in (talk, *children)]
    assert there == [True, True, False, False]


async def test_a_child_has_no_sandbox_of_its_own_and_loses_its_parents_with_its_parent(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    own = sandboxes.id_of(child.public_id)
    assert await answered(rest, SANDBOXES, id=[own, SANDBOX]) == [None, sandbox()]
    await astore.call(deletion.soft_delete, talk)
    (shown,) = await answered(rest, CONVERSATIONS, ids=child.public_id)
    assert shown["sandbox_id"] == own
    assert (await rest.post(f"{SANDBOXES}/{own}/pause")).status_code == 200


async def test_the_config_of_a_conversation_names_its_sandbox(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    await astore.call(create, alice, "my-own-name")
    await astore.call(creation.create, alice, conversation_id="v0")
    names = [ID, child.public_id, "my-own-name", "v0"]
    configs = [await answered(rest, f"/api/conversations/{name}/config") for name in names]
    assert [config["runtime_id"] for config in configs] == [SANDBOX, SANDBOX, None, None]


@pytest.mark.needs_engine
async def test_a_loop_that_was_started_meanwhile_is_not_noted_as_stopped(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(AgentLoop.objects.create, conversation_id=talk.pk, status="running")
    await astore.call(steering.note_paused, [talk])
    assert await statuses(rest) == ("RUNNING", "RUNNING", "RUNNING")


# Lists


@pytest.mark.needs_engine
async def test_sandboxes_come_in_pages_the_newest_first_and_one_for_each_family(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    others = [(await astore.call(create, alice, uuid4().hex)).public_id for _ in range(6)]
    await astore.call(child_of, talk, alice)
    expected = [sandboxes.id_of(each) for each in (*others[::-1], HEX)]
    for limit in (1, 2, 6, 7, 100):
        assert await all_ids(rest, f"{SANDBOXES}/search", limit=limit) == expected


async def test_in_accounts_mode_a_sandbox_tells_its_owner_and_key(
    accounts: None, alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    token = (await astore.call(ApiToken.issue, alice.pk, "laptop"))[1]
    rest.headers["authorization"] = f"Bearer {token}"
    (found,) = await answered(rest, SANDBOXES, id=SANDBOX)
    (shown,) = await answered(rest, CONVERSATIONS, ids=ID)
    assert found == sandbox(created_by_user_id=str(alice.pk), session_api_key=shown["session_api_key"])
    assert found["session_api_key"] == Matching("ck_.+")


async def test_the_only_spec_is_this_servers_own(rest: httpx.AsyncClient) -> None:
    page = await answered(rest, f"{APP}/sandbox-specs/search")
    (spec,) = page["items"]
    assert await answered(rest, f"{APP}/sandbox-specs", id=["convserver", "x"]) == [spec, None]
    assert spec.keys() == {"id", "command", "created_at", "initial_env", "working_dir"}


@pytest.mark.needs_engine
def test_sandboxes_cost_the_same_however_many_there_are(alice: User, talk: ConversationRef) -> None:
    child_of(talk, alice)
    few = [cost(path) for path in (f"{SANDBOXES}/search", f"{SANDBOXES}?id={SANDBOX}")]
    many = [create(alice, uuid4().hex) for _ in range(60)]
    for each in many[:20]:
        child_of(child_of(each, alice), alice)
    asked = repeated("id", [sandboxes.id_of(each.public_id) or "" for each in many])
    assert [cost(path) for path in (f"{SANDBOXES}/search", f"{SANDBOXES}?{asked}")] == few
    assert max(few) <= 7
