"""docs/protocol.md keeps its word: its frames, addresses, codes and numbers are those of a running server."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.urls import get_resolver
from pydantic import TypeAdapter

from conversations import live, models
from conversations.confined import documents
from conversations.events import ConversationRef
from conversations.log import reads
from conversations.store import changes, creation
from convserver import pagination
from convserver.api.errors import NATIVE_STATUS
from sessions_app import astore
from sessions_app.agents.remote import programs, remote_turn, turn_frames
from sessions_app.capacity import append_queue
from sessions_app.identity import principals
from sessions_app.imports.uploads import pieces
from sessions_app.live import drafts, hub
from sessions_app.live.drafts import Edit
from sessions_app.loops import command_channel, leases
from sessions_app.loops.inputs.while_working import AgentWorking
from sessions_app.loops.leases import LoopHeld
from sessions_app.loops.playing import streamed_answer
from sessions_app.processes import this_process
from sessions_app.settings import run_options
from sessions_app.sockets import arrivals, handshake, socket
from sessions_app.sockets.native import agent as native_agent
from sessions_app.sockets.native import frames as native
from sessions_app.sockets.native import list_reader as native_list
from sessions_app.sockets.native import reader as native_reader
from sessions_app.sockets.native.attached_files import FilesOfMessage
from sessions_app.storage import attachments
from tests.conftest import Dial, Join
from tests.doors.test_access import routes
from tests.support.data.events import event
from tests.support.people.clients import Client
from tests.support.people.dictation import Dictate, dictate, end_answer
from tests.support.people.remote_agents import Helper, attach

pytestmark = pytest.mark.one_engine

__all__ = ["dictate"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()

OPAQUE = {"event", "changes", "arguments"}
"""Members whose keys are not the protocol's."""

LIMITS = {
    "bytes of a frame or a body": native.FRAME_MAX_BYTES,
    "events of an `events` frame": native.EVENTS_MAX,
    "frames of a list by REST": native.EVENTS_MAX,
    "characters of a frame's `id`": native.FRAME_ID_MAX_LENGTH,
    "characters of a `session`": native.SESSION_MAX_LENGTH,
    "images of a `message`": native.IMAGES_MAX,
    "files of a `message`": TypeAdapter(FilesOfMessage).json_schema()["maxItems"],
    "characters of the text of a file": documents.TEXT_MAX_CHARS,
    "bytes of an attached file": attachments.FILE_MAX_BYTES,
    "bytes of a piece of an uploaded file": pieces.PIECE_MAX_BYTES,
    "events of a page by REST": reads.PAGE_MAX_EVENTS,
    "conversations of a page by REST": pagination.PAGE_MAX,
    "bytes of a draft's text": drafts.TEXT_MAX_BYTES,
    "bytes of a draft's images": drafts.IMAGES_MAX_BYTES,
    "frames of one socket that wait for their commit": arrivals.UNANSWERED_MAX,
    "characters of their events": arrivals.UNANSWERED_MAX_CHARACTERS,
    "bytes of one user's appends that wait for their commit, over all sockets and requests": (
        append_queue.USER_MAX_BYTES
    ),
    "characters of a first `auth` frame": handshake.AUTH_FRAME_MAX_CHARACTERS,
    "characters of an agent's frame": native_agent.FRAME_MAX_CHARACTERS,
    "characters of the pieces of one answer of an agent, `think` included": remote_turn.ANSWER_MAX_CHARACTERS,
    "steps of one turn that wait to be carried out; then no more frames of its program are read": (
        programs.WAITING_MAX
    ),
    "frames a second of an agent, over a longer time; more wait": native_agent.FRAMES_PER_S,
    "characters of the `text` of `inputs`, and of `done`, in a `turn`": turn_frames.SHOWN_MAX_CHARACTERS,
    "seconds between heartbeats": native_reader.HEARTBEAT_S,
    "seconds that a socket waits for `auth`": handshake.AUTH_WAIT_S,
    "seconds until a revoked credential closes an open socket": principals.RECHECK_S,
    "the same where a hint is lost or Redis is away": hub.POLL_S,
    "seconds that a client may leave frames unread": socket.SLOW_READER_S,
    "seconds by which a lost hint may delay an event": hub.POLL_S,
    "seconds that the server waits for a `stop`, `pause` or `run`": command_channel.WAIT_S,
}

RUN_IN_ORDER = [
    201,
    201,
    *(200 for _ in range(12)),
    201,
    *(200 for _ in range(6)),
    409,
    204,
    *(200 for _ in range(5)),
    404,
    *(200 for _ in range(4)),
    201,
    204,
    200,
]
"""What the page's commands are answered with; nothing waits for approval just then."""


def part(title: str) -> str:
    """Return what stands under a heading, up to the next one of its rank or a higher one."""
    level, _ = title.split(" ", 1)
    _, found, rest = PAGE.partition(f"\n{title}\n")
    assert found, f"docs/protocol.md has no heading {title!r}"
    end = re.search(rf"^#{{1,{len(level)}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def examples(title: str) -> dict[str, list[dict[str, Any]]]:
    """Return the frames under a heading, by the type that the heading above each names."""
    sections = re.split(r"^#### `(\w+)`$", part(title), flags=re.MULTILINE)[1:]
    return {
        name: [json.loads(text) for text in re.findall(r"```json\n(.*?)\n```", body, re.DOTALL)]
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }


def first_column(title: str) -> list[str]:
    """Return what the rows of a table begin with."""
    rows = re.findall(r"^\| (.+?) \|", part(title), re.MULTILINE)
    return rows[1:]


def shape(value: Any) -> Any:
    """Return the keys of a frame, and of what it holds."""
    if not isinstance(value, dict):
        return ()
    return frozenset((key, () if key in OPAQUE else shape(inner)) for key, inner in value.items())


def shapes(frames: list[dict[str, Any]]) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for frame in frames:
        found.setdefault(frame["type"], set()).add(shape(frame))
    return found


def members_of(frames: list[dict[str, Any]]) -> set[Any]:
    """Return which members frames of each type have, whatever these hold."""
    return {(frame["type"], *sorted(frame)) for frame in frames}


def objects_in(frames: list[dict[str, Any]]) -> set[Any]:
    """Return the shapes of what the members of frames of each type hold."""
    return {
        (frame["type"], name, shape(value))
        for frame in frames
        for name, value in frame.items()
        if isinstance(value, dict)
    }


def documented(title: str) -> dict[str, set[Any]]:
    return shapes([frame for frames in examples(title).values() for frame in frames])


# Frames from the server


async def test_every_frame_that_a_conversations_socket_sends_stands_here_with_its_keys(
    alice: User, conversation: ConversationRef, join: Join, dictate: Dictate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_reader, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(streamed_answer, "SNAPSHOT_S", 0.0)
    await astore.append(conversation, [event()])
    client = await join(conversation)
    for frames in examples("### From the client").values():
        if frames[0]["type"] in ("event", "events", "seen"):
            await client.send(frames[0])
            await client.until("ack", id=frames[0]["id"])
    await client.send("no frame")
    await client.until("error")
    await client.send({"type": "message", "text": "Good morning"})
    await dictate("You said:", " Good")
    late = await join(conversation)
    await late.until("answer")
    await dictate(" morning")
    progress = {"turn": "t", "call": "c", "text": "Reading files", "done": 3.0, "total": None}
    live.announce(live.conversation_group(conversation.pk), {"kind": "progress", **progress})
    await client.until("progress")
    end_answer()
    await client.until("event", kind="turn")
    await astore.call(changes.retitle, conversation, "A new title")
    await client.until("conversation")
    await client.until("heartbeat")
    busy = await join(await astore.call(_held_elsewhere, alice))
    monkeypatch.setattr(command_channel, "WAIT_S", 0.05)
    await busy.send({"type": "stop", "id": "stop-1"})
    await busy.until("ack", id="stop-1")
    assert shapes(client.frames + late.frames + busy.frames) == documented("### From the server")


def _held_elsewhere(owner: User) -> ConversationRef:
    """Return a conversation whose loop runs in a process that does not answer."""
    conversation = creation.create(owner, conversation_id="held")
    leases.claim(conversation, this_process()._replace(host="elsewhere"), agent="")
    return conversation


async def test_every_frame_that_the_lists_socket_sends_stands_here_with_its_keys(
    conversation: ConversationRef, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_list, "HEARTBEAT_S", 0.05)
    client = await dial("/ws/conversations")
    await client.send(examples("### The list, from the client")["auth"][0])
    await client.until("ack")
    await client.send({"type": "message", "text": "Good morning", "id": 1})
    await client.until("error")
    await astore.call(changes.retitle, conversation, "A new title")
    await client.until("conversation")
    await astore.call(drafts.write, conversation.owner_id, conversation, Edit(text="", images=[], version=0))
    await client.until("draft")
    await client.until("heartbeat")
    assert shapes(client.frames) == documented("### The list, from the server")


async def test_every_frame_that_an_agents_socket_sends_stands_here_with_its_keys(
    conversation: ConversationRef, join: Join, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_agent, "HEARTBEAT_S", 0.05)
    await astore.call(run_options.change, conversation, {"agent": "remote:helper"})
    reader, helper = await join(conversation), await attach(dial)
    await helper.client.until("heartbeat")
    await reader.send({"type": "message", "text": "Good morning"})
    steps = _steps()
    await helper.take()
    for step in (steps["delta"], steps["delta"], {**steps["say"], "text": "Good"}, steps["say"]):
        await _step(helper, step)
    for kind in ("call", "call", "start", "result", "call", "look"):
        await _step(helper, steps[kind])
    await _step(helper, {**steps["say"], "id": "late", "turn": "over"})
    await _step(helper, {**steps["delta"], "answer": "more"})
    await reader.send({"type": "pause", "id": 1})
    await helper.client.until("pause")
    await helper.send("call", id="sure", name="run", ask=True)
    await helper.client.until("suspend")
    await reader.send({"type": "run", "id": 2})
    await helper.take()
    await helper.send("call", id="sure", name="run", ask=True)
    await helper.client.until("suspend")
    await _decide(reader)
    await helper.take()
    await helper.step("call", "sure", name="run", ask=True)
    await _step(helper, {**steps["delta"], "answer": "third"})
    again = await attach(dial)
    await helper.client.until("fenced")
    await again.take()
    await _step(again, steps["done"])
    await reader.send({"type": "message", "text": "And now?"})
    await again.take()
    await reader.send({"type": "stop", "id": 3})
    await again.client.until("stop")
    sent = [*helper.client.frames, *again.client.frames]
    described = [frame for frames in examples("### The agent, from the server").values() for frame in frames]
    assert members_of(sent) == members_of(described)
    assert objects_in(sent) == objects_in(described)


def _steps() -> dict[str, dict[str, Any]]:
    """Return what an agent's program may send, by type."""
    return {name: frames[0] for name, frames in examples("### The agent, from the client").items()}


async def _step(helper: Helper, step: dict[str, Any]) -> None:
    members = {name: value for name, value in step.items() if name not in ("type", "id", "turn", "epoch")}
    turn = {"turn": step["turn"]} if step["turn"] == "over" else {}
    await helper.step(step["type"], step["id"], **members, **turn)


async def _decide(reader: Client) -> None:
    while (await reader.until("conversation"))["changes"].get("loop", {}).get("execution_status") != (
        "waiting_for_confirmation"
    ):
        pass
    await reader.send({"type": "confirm", "id": "yes", "accept": True})


@pytest.mark.parametrize(
    "title", ["### From the server", "### The list, from the server", "### The agent, from the server"]
)
def test_each_example_stands_under_its_own_name(title: str) -> None:
    wrong = [frame for name, frames in examples(title).items() for frame in frames if frame["type"] != name]
    assert wrong == []
    assert all(examples(title).values())


def test_what_a_conversation_frame_may_bring_stands_here() -> None:
    section = part("#### `conversation`")
    assert all(f"`{name}`" in section for name in native_reader.SHOWN_CHANGES)


# Frames from the client


async def test_every_frame_that_a_client_may_send_stands_here(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    await client.send({"type": "no such frame"})
    detail: str = (await client.until("error"))["detail"]
    assert set(detail.partition("there are ")[2].rstrip(".").split(", ")) == set(
        examples("### From the client")
    )


@pytest.mark.parametrize("name", examples("### From the client"))
async def test_the_example_of_a_clients_frame_is_accepted(
    conversation: ConversationRef, join: Join, name: str
) -> None:
    client = await join(conversation)
    if name == "confirm":
        await client.send({"type": "message", "text": "/approve"})
        await client.until("event", kind="tool_call")
        while "loop" not in (changes := (await client.until("conversation"))["changes"]) or (
            changes["loop"]["execution_status"] != "waiting_for_confirmation"
        ):
            pass
    (frame,) = examples("### From the client")[name]
    assert frame["type"] == name
    await client.send(frame)
    while (answer := await client.receive())["type"] not in ("ack", "error"):
        pass
    assert (answer["type"], answer["id"]) == ("ack", frame["id"])


@pytest.mark.parametrize("page", ["README.md", "docs/protocol.md"])
async def test_the_example_of_a_message_is_stored_once_however_often_it_is_resent(
    conversation: ConversationRef, join: Join, page: str
) -> None:
    """As the promises say of it: a client that joins again need not know the former `session`."""
    (frame,) = re.findall(
        r'^(?:> )?(\{"type": ?"message", ?"id".*)$', (ROOT / page).read_text(), re.MULTILINE
    )
    seqs = []
    for _ in range(2):
        client = await join(conversation)
        await client.send(json.loads(frame))
        seqs.append((await client.until("ack"))["seq"])
    assert seqs == [0, 0]


async def test_every_frame_that_an_agents_program_may_send_stands_here(dial: Dial) -> None:
    helper = await attach(dial)
    await helper.client.send({"type": "no such frame"})
    detail: str = (await helper.client.until("error"))["detail"]
    assert set(detail.partition("there are ")[2].rstrip(".").split(", ")) == set(
        examples("### The agent, from the client")
    )


@pytest.mark.parametrize("name", examples("### The agent, from the client"))
@pytest.mark.sampled(6)
async def test_the_example_of_a_step_is_accepted(
    conversation: ConversationRef, join: Join, dial: Dial, name: str
) -> None:
    await astore.call(run_options.change, conversation, {"agent": "remote:helper"})
    reader, helper = await join(conversation), await attach(dial)
    await reader.send({"type": "message", "text": "Good morning"})
    await helper.take()
    before = {"think": "delta", "start": "call", "result": "call"}.get(name)
    if name == "auth":
        await helper.client.send(_steps()[name])
        assert (await helper.answer("auth-1"))["type"] == "ack"
        return
    for kind in filter(None, (before, name)):
        step = {**_steps()[kind], "turn": helper.turn["turn"], "epoch": helper.turn["epoch"]}
        await helper.client.send(step)
    while (answer := await helper.client.receive()).get("id") != _steps()[name]["id"]:
        pass
    assert answer["type"] == ("suspend" if name == "pause" else "ack")


# REST


def native_routes() -> Iterator[str]:
    """Return what the native REST door serves, as the page writes it."""
    paths = {
        "native-conversation-list": "/conversations",
        "native-conversation-detail": "/conversations/{id}",
        "native-events": "/conversations/{id}/events",
        "native-conversation-fork": "/conversations/{id}/fork",
        "native-conversation-fork-progress": "/conversations/{id}/fork-progress",
        "native-conversation-branches": "/conversations/{id}/branches",
        "native-conversation-pending-calls": "/conversations/{id}/pending-calls",
        "native-conversation-rotate-key": "/conversations/{id}/rotate-key",
        "native-conversation-restore-files": "/conversations/{id}/restore-files",
        "native-agents": "/agents",
        "native-answer-feedback": "/conversations/{id}/feedback/{seq}",
        "native-account-export": "/export",
        "native-batch": "/batch",
        "native-labels": "/labels",
        "native-draft": "/draft",
        "native-imports": "/imports",
        "native-import": "/imports/{import_id}",
        "native-import-pieces": "/imports/{import_id}/pieces",
        "native-import-start": "/imports/{import_id}/start",
        "native-import-cancel": "/imports/{import_id}/cancel",
        "native-import-conversations": "/imports/{import_id}/conversations",
        "native-list-stream": "/stream",
        "native-search": "/search",
        "native-token-list": "/tokens",
        "native-token-detail": "/tokens/{token_id}",
    }
    for name, method in routes(get_resolver()):
        if name.startswith("native-") and name != "native-socket":  # which takes no plain request
            path = paths.get(name) or f"/conversations/{{id}}/{name.rpartition('-')[2]}"
            yield f"`{method} /api/native{path}`"


def test_every_address_of_the_rest_door_stands_here() -> None:
    assert sorted(first_column("## REST")) == sorted(native_routes())


async def test_every_command_here_can_be_run(alice: User, rest: httpx.AsyncClient) -> None:
    statuses, token = [], ""
    for line in re.findall(r"^curl (.+)$", PAGE, re.MULTILINE):
        words = shlex.split(line)
        options = {
            words[at]: words[at + 1] for at in range(len(words) - 1) if words[at] in ("-X", "-H", "-d")
        }
        (url,) = (word for word in words if word.startswith("http"))
        name, _, value = options.get("-H", "Accept: */*").partition(": ")
        answer = await rest.request(
            options.get("-X", "GET"),
            re.sub(r"/tokens/\w+$", f"/tokens/{token}", url),
            content=options.get("-d"),
            headers={name: value, "host": "localhost:8000"},
        )
        statuses.append(answer.status_code)
        if url.endswith("/tokens"):
            token = answer.json()["id"]
    assert statuses == RUN_IN_ORDER


# Codes and numbers


def test_every_error_code_stands_here_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", part("## Errors"), re.MULTILINE))
    table = {error.code: str(status) for error, status in NATIVE_STATUS.items()}
    assert table.items() <= rows.items()
    assert {LoopHeld.code: "409", AgentWorking.code: "409"}.items() <= rows.items()


def test_every_close_code_stands_here() -> None:
    codes = {principals.BAD_REQUEST, principals.NOT_AUTHENTICATED, principals.NOT_FOUND, principals.TOO_SLOW}
    codes |= {principals.NOT_ALLOWED, principals.SUPERSEDED}
    assert set(first_column("## Close codes")) >= set(map(str, codes))


def test_the_limits_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.+) \| (\d+) \|$", part("## Limits"), re.MULTILINE))
    assert rows == {name: str(int(value)) for name, value in LIMITS.items()}
    assert f"1 to {models.PUBLIC_ID_MAX_LENGTH} characters" in PAGE
