"""What takes long to read holds up nobody else: it is bounded, off the event loop, and in its user's turn."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.capacity import parsing
from sessions_app.capacity.parsing import SIZE_PER_S, FairThread, Pace
from sessions_app.models import ApiToken
from tests.conftest import Connect, Dial, Join
from tests.support.data.events import payload
from tests.support.people.clients import WAIT_S
from tests.support.wires import app_face
from tests.support.wires.v1 import SHARED
from tests.support.wires.v1_socket import events_path, until_full_state

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native/conversations"
EVENTS = f"{NATIVE}/talk/events"
WEBHOOK = f"{app_face.APP}/webhooks/{app_face.SANDBOX}/events/{app_face.ID}"
STRANGER = -1

MANY = 1_000_000
ITEMS = "[" + "1," * MANY + "1]"
MEMBERS = "{" + ",".join(f'"k{number:07d}":1' for number in range(400_000)) + "}"
HEAVY = "x" * 100_000
"""A text that is not light."""

SOON_S = 0.1
"""What nothing holds up is done sooner."""

Send = Callable[[], Coroutine[Any, Any, object]]


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's on the V1 wire."""
    return app_face.create(alice)


@pytest.fixture
def stranger() -> Iterator[threading.Event]:
    """Somebody else whose turn it is, until the event is set."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        over.wait(WAIT_S)

    held = parsing._thread.submit(STRANGER, hold)
    assert begun.wait(WAIT_S)
    yield over
    over.set()
    held.result(WAIT_S)


class Stall:
    """How long at most others had to wait for the event loop."""

    longest_s = 0.0


@asynccontextmanager
async def watched() -> AsyncIterator[Stall]:
    """Watch the event loop."""
    stall = Stall()

    async def look() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            stall.longest_s = max(stall.longest_s, time.perf_counter() - before)

    task = asyncio.create_task(look())
    await asyncio.sleep(0)
    yield stall
    task.cancel()


def seconds_to_decode(text: str) -> float:
    """Return how long the decoder takes: everything else, on this machine and now, is compared with that."""
    before = time.perf_counter()
    json.loads(text)
    return time.perf_counter() - before


def recorded(frame_id: str, text: str) -> dict[str, Any]:
    return {"type": "event", "id": frame_id, "event": json.loads(payload(text))}


# What is refused, is refused before it costs anything

REFUSED_BODIES = {
    "a list of frames": (EVENTS, ITEMS, 413),
    "a frame": (EVENTS, f'{{"type":"event","event":{MEMBERS}}}', 413),
    "a new native conversation": (NATIVE, f'{{"x":{MEMBERS}}}', 413),
    "a V0 message": ("/api/conversations/talk/message", f'{{"message":{ITEMS}}}', 422),
    "a V0 event": ("/api/conversations/talk/events", f'{{"action":"message","args":{MEMBERS}}}', 422),
    "a new conversation of either wire": ("/api/conversations", f'{{"agent":1,{MEMBERS[1:]}', 422),
    "a V1 start": (app_face.CONVERSATIONS, f'{{"initial_message":{ITEMS}}}', 422),
    "a replay": ("/api/conversations", json.dumps({"replay_json": ITEMS}), 422),
    "reported events": (WEBHOOK, ITEMS, 413),
}


@pytest.mark.parametrize(("path", "body", "status"), REFUSED_BODIES.values(), ids=REFUSED_BODIES)
@pytest.mark.sampled(4)
async def test_a_body_of_too_many_values_is_refused_sooner_than_it_could_be_decoded(
    conversation: ConversationRef,
    talk: ConversationRef,
    rest: httpx.AsyncClient,
    path: str,
    body: str,
    status: int,
) -> None:
    await rest.get(EVENTS)
    allowed_s = seconds_to_decode(ITEMS) + seconds_to_decode(MEMBERS)
    headers, before = {"content-type": "application/json"}, time.perf_counter()
    response = await rest.post(path, content=body, headers=headers)
    took_s = time.perf_counter() - before
    assert response.status_code == status, response.text
    assert "0,000 values (members of objects and items of lists)" in response.text
    assert took_s < allowed_s


async def test_a_long_list_of_frames_is_not_taken_apart_beyond_its_limit(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    body = f"[{'{},' * 501}not JSON at all"
    response = await rest.post(EVENTS, content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["detail"]) == (400, "A list can hold at most 500 frames.")


REFUSED_FRAMES = {
    "members of its own": MEMBERS,
    "members of its event": f'{{"type":"event","id":"a","event":{MEMBERS}}}',
    "items for events": f'{{"type":"events","id":"a","events":{ITEMS}}}',
}


@pytest.mark.parametrize("frame", REFUSED_FRAMES.values(), ids=REFUSED_FRAMES)
@pytest.mark.parametrize("path", ["/ws/conversations/talk", "/ws/conversations"])
@pytest.mark.sampled(2)
async def test_a_frame_of_too_many_values_does_not_hold_up_the_event_loop(
    conversation: ConversationRef, dial: Dial, path: str, frame: str
) -> None:
    client = await dial(path)
    await client.receive()
    allowed_s = seconds_to_decode(frame)
    async with watched() as stall:
        await client.send(frame)
        error = await client.until("error")
    assert (error["code"], error["id"]) == ("too_large", None)
    assert "more than 100,000 values" in error["detail"]
    assert stall.longest_s < allowed_s


async def test_nor_does_a_frame_of_the_v1_wire(talk: ConversationRef, dial: Dial) -> None:
    client = await dial(events_path(talk), query={"resend_mode": "all"})
    await until_full_state(client)
    allowed_s = seconds_to_decode(MEMBERS)
    async with watched() as stall:
        await client.send(f'{{"role":"user","content":{MEMBERS}}}')
        while (error := await client.receive())["kind"] != "ServerErrorEvent":
            pass
    assert (error["code"], "more than 100,000 values" in error["detail"]) == ("ValidationError", True)
    assert stall.longest_s < allowed_s


async def test_nor_does_an_event_of_the_v0_wire(conversation: ConversationRef, connect: Connect) -> None:
    client = await connect("talk")
    members = MEMBERS[:4_000_000].rpartition(",")[0] + "}"
    allowed_s = seconds_to_decode(members)
    async with watched() as stall:
        answer = await client.asked_text(f'["oh_user_action",{{"action":"message","args":{members}}}]')
    assert answer["success"] is False
    assert "more than 100,000 values" in answer["error"]
    assert stall.longest_s < allowed_s


# What is taken, is read in its turn


async def waits_for_its_turn(send: Send, stranger: threading.Event, others: Send) -> object:
    """Send something large while somebody else's turn lasts, and what others send meanwhile."""
    large = asyncio.create_task(send())
    await others()
    assert not large.done()
    stranger.set()
    return await large


@pytest.fixture
def other(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id="other")


@pytest.fixture
async def others(other: ConversationRef, rest: httpx.AsyncClient, join: Join) -> Send:
    """What is asked for meanwhile elsewhere, and answered."""
    client = await join(other)
    await client.until("replay_complete")

    async def ask() -> None:
        for number in range(20):  # more than enough for the large one to arrive
            await client.send(recorded(f"o{number}", "small"))
            assert (await client.until("ack"))["seq"] == number
        assert (await rest.get("/alive")).status_code == 200
        assert (await rest.post(EVENTS, json=recorded("p", "small"))).status_code == 200

    return ask


async def test_a_large_frame_waits_for_its_turn_and_small_ones_do_not(
    conversation: ConversationRef, join: Join, stranger: threading.Event, others: Send
) -> None:
    client = await join(conversation)

    async def send() -> object:
        await client.send(recorded("a", HEAVY))
        return await client.until("ack")

    assert await waits_for_its_turn(send, stranger, others) == {"type": "ack", "id": "a", "seq": 1}


async def test_a_large_body_waits_for_its_turn_and_small_ones_do_not(
    conversation: ConversationRef, rest: httpx.AsyncClient, stranger: threading.Event, others: Send
) -> None:
    async def send() -> object:
        return (await rest.post(EVENTS, json=recorded("a", HEAVY))).json()

    assert await waits_for_its_turn(send, stranger, others) == {"type": "ack", "id": "a", "seq": 1}


async def test_a_large_event_of_the_v0_wire_waits_for_its_turn(
    conversation: ConversationRef, connect: Connect, stranger: threading.Event, others: Send
) -> None:
    client = await connect("talk")

    async def send() -> object:
        return await client.asked({"action": "message", "args": {"content": HEAVY}})

    answer: Any = await waits_for_its_turn(send, stranger, others)
    assert answer["success"] is True


async def test_a_large_message_of_the_v1_wire_waits_for_its_turn(
    conversation: ConversationRef, talk: ConversationRef, dial: Dial, stranger: threading.Event, others: Send
) -> None:
    client = await dial(events_path(talk), query={"resend_mode": "all"})

    async def send() -> object:
        await client.send({"role": "user", "content": HEAVY})
        while (frame := await client.receive())["kind"] != "MessageEvent":
            pass
        return frame["llm_message"]["content"][0]["text"]

    assert await waits_for_its_turn(send, stranger, others) == HEAVY


async def test_a_large_frame_waits_behind_those_of_its_user_and_nobody_elses(
    conversation: ConversationRef, join: Join, others: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "SIZE_PER_S", 1)
    client = await join(conversation)
    await client.send(recorded("a", HEAVY))
    await client.until("ack")
    await client.send(recorded("b", HEAVY))
    waiting = asyncio.create_task(client.until("ack"))
    await others()
    assert await parsing.in_turn(STRANGER, False, len, HEAVY) == len(HEAVY)
    assert not waiting.done()
    waiting.cancel()


def test_large_texts_of_one_user_are_read_at_a_bounded_rate() -> None:
    pace = Pace()
    assert pace.delay_s(1, 2 * SIZE_PER_S, now=100) == 0
    assert pace.delay_s(1, SIZE_PER_S, now=100.5) == 1.5
    assert pace.delay_s(2, 1, now=100.5) == 0
    assert pace.delay_s(1, 1, now=101) == 2
    assert pace.delay_s(1, 1, now=104) == 0


def test_nothing_is_kept_of_users_whose_next_text_would_not_wait() -> None:
    pace = Pace()
    for user in range(100):
        pace.delay_s(user, SIZE_PER_S, now=float(user))
    assert len(pace) <= 2


# Turns


async def test_a_large_body_for_the_address_of_two_wires_counts_for_its_user(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = list[Hashable]()
    submit = FairThread.submit

    def noted(thread: FairThread, user: Hashable, *work: Any, **more: Any) -> Any:
        users.append(user)
        return submit(thread, user, *work, **more)

    monkeypatch.setattr(FairThread, "submit", noted)
    for user in (alice, bob):
        _, token = await astore.call(ApiToken.issue, user.pk, "laptop")
        body = json.dumps({"agent": HEAVY})
        answer = await rest.post(SHARED, content=body, headers={"x-session-api-key": token})
        assert answer.status_code == 422
    assert set(users) == {alice.pk, bob.pk}


def test_users_take_turns_however_much_one_of_them_wants() -> None:
    turns, order, held = FairThread(), list[str](), threading.Event()
    turns.submit(0, held.wait, WAIT_S)
    futures = [
        turns.submit(user, order.append, f"{name}{number}")
        for user, name, count in ((1, "a", 3), (2, "b", 2), (None, "c", 1))
        for number in range(count)
    ]
    held.set()
    for future in futures:
        future.result(WAIT_S)
    assert order == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    turns, done, held = FairThread(), list[int](), threading.Event()
    turns.submit(0, held.wait, WAIT_S)
    given_up, kept = turns.submit(1, done.append, 1), turns.submit(1, done.append, 2)
    assert given_up.cancel()
    held.set()
    kept.result(WAIT_S)
    assert done == [2]


def test_a_failure_reaches_whoever_asked_and_nobody_else() -> None:
    turns = FairThread()
    failing, working = turns.submit(1, int, "x"), turns.submit(1, int, "7")
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result(WAIT_S)
    assert working.result(WAIT_S) == 7


def test_nobody_is_left_waiting_when_the_process_ends() -> None:
    turns, held = FairThread(), threading.Event()
    turns.submit(1, held.wait, WAIT_S)
    waiting = [turns.submit(1, int, digit) for digit in "78"]
    turns._thread.shutdown(wait=False)
    held.set()
    assert [future.result(WAIT_S) for future in waiting] == [7, 8]
