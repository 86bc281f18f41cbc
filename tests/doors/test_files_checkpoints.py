"""Checkpoints of files by the native door and on pages: who may list and restore them, and how."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.dialects import AgentState
from conversations.log import writes
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.checkpoints import kept
from sessions_app.checkpoints.kept import NewCheckpoint
from sessions_app.loops import turn_events
from sessions_app.models import AgentLoop, CheckpointCause, ExecutionStatus, FilesCheckpoint
from sessions_app.sandbox.base import SandboxName
from sessions_app.workspaces import records
from tests.support.data.events import event
from tests.support.people.commands import require_bubblewrap
from tests.support.wires.v1 import known

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native/conversations/talk"


@pytest.fixture(autouse=True)
def sandboxed(tmp_path: Path, configured: Callable[..., None]) -> None:
    configured(workspaces=tmp_path / "workspaces", sandbox=SandboxName.AUTO)
    require_bubblewrap()


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    made = creation.create(alice, conversation_id="talk", version=Version.V0, title="A talk")
    writes.append(made, [event("Make it."), event("Made.")])
    return made


async def changed(talk: ConversationRef, **contents: str) -> FilesCheckpoint:
    """End a turn that has written these files."""
    files = await astore.call(records.directory_of, talk)
    for name, content in contents.items():
        (files / name).write_text(content)
    end = turn_events.end_of_turn(talk, "0" * 32, AgentState.FINISHED, naming=turn_events.fresh_id)
    (stored,) = await astore.append(talk, [end])
    return await kept.take(talk, NewCheckpoint(stored.seq, CheckpointCause.TURN), timeout_s=60)


async def sent(rest: httpx.AsyncClient, **form: str) -> httpx.Response:
    """Send the form of the page, as a browser does."""
    await rest.get("/c/talk")
    token = rest.cookies["csrftoken"]
    return await rest.post("/c/talk/restore-files", data={**form, "csrfmiddlewaretoken": token})


async def test_files_are_listed_restored_and_the_restore_is_undone_by_the_native_door(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    first = await changed(talk, a="one")
    await changed(talk, a="two", b="new")
    files = await astore.call(records.directory_of, talk)
    listed = known(await rest.get(f"{NATIVE}/checkpoints"))["checkpoints"]
    assert [(each["seq"], each["cause"], each["changed"]) for each in listed] == [
        (3, "turn", 2),
        (2, "turn", 1),
    ]
    answer = known(await rest.post(f"{NATIVE}/restore-files", json={"seq": 2}))
    assert answer["restored"]["id"] == first.checkpoint_id
    assert {each.name: each.read_text() for each in files.iterdir()} == {"a": "one"}
    known(await rest.post(f"{NATIVE}/restore-files", json={"checkpoint": answer["before"]["id"]}))
    assert {each.name: each.read_text() for each in files.iterdir()} == {"a": "two", "b": "new"}
    events = known(await rest.get(f"{NATIVE}/events"))["events"]
    assert [each["text"][:27] for each in events[-2:]] == ["The user has restored the f"] * 2


async def test_a_restore_is_refused_with_a_sentence(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    assert (
        known(await rest.post(f"{NATIVE}/restore-files", json={"seq": 2}), 404)["code"] == "checkpoint_gone"
    )
    await changed(talk, a="one")
    for body in ({}, {"seq": 1, "checkpoint": "x"}, {"seq": "x"}):
        known(await rest.post(f"{NATIVE}/restore-files", json=body), 400)
    await AgentLoop.objects.acreate(
        conversation_id=talk.pk, turn_id="1" * 32, execution_status=ExecutionStatus.RUNNING
    )
    refused = known(await rest.post(f"{NATIVE}/restore-files", json={"seq": 2}), 409)
    assert refused == {
        "code": "agent_at_work",
        "detail": "The agent is working. Stop it first, or wait for its end.",
    }
    assert await FilesCheckpoint.objects.acount() == 1


async def test_the_page_says_what_a_turn_has_changed_and_restores_it_without_scripts(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await changed(talk, a="one", b="one", c="one")
    files = await astore.call(records.directory_of, talk)
    page = (await rest.get("/c/talk")).text
    assert "The agent changed 3 files." in page
    assert page.index("Made.") < page.index("The agent changed 3 files.")
    assert "/c/talk/restore-files?at=2" in page
    assert "/c/talk/restore-files?at=1" not in page  # no files of that moment are known
    line = await rest.get("/c/talk/changed-files?seq=2")
    assert (line.status_code, "The agent changed 3 files." in line.text) == (200, True)
    assert (await rest.get("/c/talk/changed-files?seq=1")).status_code == 204
    (files / "a").write_text("other")
    (files / "b").unlink()
    await changed(talk, d="new")
    for seq, names in (("2", []), ("3", ["a changed", "b removed", "d new"])):
        listed = (await rest.get(f"/c/talk/changes?turn={seq}")).text
        found = re.findall(r'<bdi>([abd])</bdi> <span class="quiet">(\w+)<', listed)
        assert [" ".join(each) for each in found] == names, seq
    asked = await rest.get("/c/talk/restore-files?at=2")
    assert "Restore files</button>" in asked.text
    assert (files / "a").read_text() == "other"
    done = await sent(rest, at="2")
    assert (done.status_code, "The files were restored." in done.text) == (200, True)
    assert (files / "a").read_text() == "one"
    undo = await FilesCheckpoint.objects.aget(cause=CheckpointCause.BEFORE_RESTORE)
    assert undo.checkpoint_id in done.text
    await sent(rest, checkpoint=undo.checkpoint_id)
    assert (files / "a").read_text() == "other"
    assert (await rest.get("/c/talk/restore-files?at=x")).status_code == 404


async def test_the_page_offers_nothing_without_a_sandbox(
    talk: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    await changed(talk, a="one")
    configured(sandbox=SandboxName.OFF)
    page = (await rest.get("/c/talk")).text
    assert "restore-files" not in page
    assert "The agent changed" not in page
    assert (await sent(rest, at="2")).status_code == 409
