"""Who reads a long history lets calls pass, and comes to its end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from conversations.log import writes
from conversations.models import ConversationRef
from convserver import asgi
from convserver.asgi import application
from sessions_app.event_loops import PerEventLoop
from sessions_app.live import feed, replay_throttle
from tests.conftest import Dial, Join
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import until_here

HISTORY = 250
FOR_EVER_S = 1_000.0


@pytest.fixture
def history(conversation: ConversationRef) -> list[int]:
    """The seqs of a conversation that has something to replay."""
    writes.append(conversation, [event(str(number)) for number in range(HISTORY)])
    return list(range(HISTORY))


class HeldAnswers:
    """An application whose answers wait until they are let go: at first the beginning, then the end."""

    def __init__(self) -> None:
        self.asked, self.begin, self.end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.asked.set()
        await self.begin.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await self.end.wait()
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldAnswers:
    answers = HeldAnswers()
    monkeypatch.setattr(asgi, "http", answers)
    monkeypatch.setattr(asgi, "probes", answers)
    return answers


@pytest.mark.parametrize("path", ["/api/conversations", "/alive"])
async def test_a_history_waits_for_a_call_until_its_answer_begins(
    path: str,
    conversation: ConversationRef,
    history: list[int],
    held: HeldAnswers,
    join: Join,
    rest: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_throttle, "YIELD_MAX_S", FOR_EVER_S)
    monkeypatch.setattr(replay_throttle, "QUEUE_S", FOR_EVER_S)
    monkeypatch.setattr(replay_throttle, "CALL_S", FOR_EVER_S)
    calling = asyncio.create_task(rest.get(path))
    await held.asked.wait()
    reader = await join(conversation)
    first_step = [frame["seq"] for frame in await reader.events(feed.STEP_EVENTS)]
    assert await reader.receives_nothing(within_s=0.2)
    held.begin.set()
    assert first_step + [frame["seq"] for frame in await reader.replayed()] == history
    held.end.set()
    await calling


async def test_a_call_that_takes_long_is_not_waited_for(
    conversation: ConversationRef, history: list[int], join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_throttle, "YIELD_MAX_S", FOR_EVER_S)
    monkeypatch.setattr(replay_throttle, "QUEUE_S", FOR_EVER_S)
    replay_throttle.get_replay_throttle().begin(object())
    reader = await join(conversation)
    assert [frame["seq"] for frame in await reader.replayed()] == history


async def test_a_request_whose_body_does_not_end_holds_up_nobody(
    conversation: ConversationRef,
    history: list[int],
    join: Join,
    live: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_throttle, "YIELD_MAX_S", FOR_EVER_S)
    monkeypatch.setattr(replay_throttle, "QUEUE_S", FOR_EVER_S)
    scope = {"type": "http", "method": "POST", "path": "/api/conversations", "query_string": b""}
    headers = [(b"host", b"localhost"), (b"content-length", b"10")]
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": b"{", "more_body": True})

    async def send(message: dict[str, Any]) -> None:
        pass

    serve: Any = application
    posting = asyncio.ensure_future(serve({**scope, "headers": headers}, messages.get, send))
    reader = await join(conversation)
    assert [frame["seq"] for frame in await reader.replayed()] == history
    messages.put_nowait({"type": "http.disconnect"})
    await posting


async def test_calls_that_never_cease_hold_up_a_crowd_of_readers_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_throttle, "CALL_S", FOR_EVER_S)
    here, call = replay_throttle.get_replay_throttle(), object()
    crowd = round(2 * WAIT_S / replay_throttle.YIELD_MAX_S)
    here.begin(call)
    async with asyncio.timeout(WAIT_S):  # half of what it takes if each waits for its turn
        await asyncio.gather(*(here.yield_to_requests() for _ in range(crowd)))
    here.end(call)


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch) -> object:
    """A call that waits for its answer, for as long as the test lets it."""
    monkeypatch.setattr(replay_throttle, "_throttles", PerEventLoop(replay_throttle.ReplayThrottle))
    for name in ("YIELD_MAX_S", "QUEUE_S", "CALL_S", "BURST_S"):
        monkeypatch.setattr(replay_throttle, name, FOR_EVER_S)
    return object()


async def test_after_many_frames_at_once_a_socket_waits_for_a_call(
    conversation: ConversationRef, dial: Dial, pending: object
) -> None:
    client = await dial("/ws/conversations/talk", query={"follow": "false"})
    await client.until("hello")
    replay_throttle.get_replay_throttle().begin(pending)
    sent = [f"f{number}" for number in range(replay_throttle.BURST + 3)]
    for frame_id in sent:
        await client.send({"type": "event", "id": frame_id, "event": {"action": "run", "args": {}}})
    answered = [(await client.until("ack"))["id"] for _ in range(replay_throttle.BURST)]
    assert await client.receives_nothing(within_s=0.2)
    replay_throttle.get_replay_throttle().end(pending)
    assert answered + [(await client.until("ack"))["id"] for _ in range(3)] == sent


async def test_of_many_handshakes_at_once_those_beyond_the_first_wait_for_a_call(
    conversation: ConversationRef, join: Join, pending: object
) -> None:
    replay_throttle.get_replay_throttle().begin(pending)
    for _ in range(replay_throttle.BURST):
        await join(conversation)
    late = asyncio.ensure_future(join(conversation))
    assert not (await asyncio.wait({late}, timeout=0.2))[0]
    replay_throttle.get_replay_throttle().end(pending)
    await late


async def opened(user_pk: int, count: int) -> AsyncIterator[None]:
    """Open so many sockets of a user at the same time; each comes when it is open."""

    async def open_one() -> None:
        async with replay_throttle.get_replay_throttle().opening(user_pk):
            pass

    for each in asyncio.as_completed([open_one() for _ in range(count)]):
        await each
        yield


async def test_with_accounts_those_of_one_users_crowd_wait_for_a_call_and_no_other_users(
    accounts: None, pending: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENING_CALL_S", "OPENING_YIELD_MAX_S"):
        monkeypatch.setattr(replay_throttle, name, FOR_EVER_S)
    replay_throttle.get_replay_throttle().begin(pending)
    crowd = opened(1, replay_throttle.BURST + 3)
    for _ in range(replay_throttle.BURST):
        await anext(crowd)
    late = asyncio.ensure_future(anext(crowd))
    assert not (await asyncio.wait({late}, timeout=0.2))[0]
    assert len([one async for one in opened(2, replay_throttle.BURST)]) == replay_throttle.BURST
    replay_throttle.get_replay_throttle().end(pending)
    await late
    assert len([one async for one in crowd]) == 2


async def test_with_accounts_a_crowd_that_calls_hold_up_goes_on_all_the_same(
    accounts: None, pending: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_throttle, "OPENING_CALL_S", FOR_EVER_S)
    replay_throttle.get_replay_throttle().begin(pending)
    async with asyncio.timeout(WAIT_S):
        assert len([one async for one in opened(1, replay_throttle.BURST + 3)]) == replay_throttle.BURST + 3


async def test_in_local_mode_a_crowd_waits_for_nobody(
    pending: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENING_CALL_S", "OPENING_YIELD_MAX_S"):
        monkeypatch.setattr(replay_throttle, name, FOR_EVER_S)
    replay_throttle.get_replay_throttle().begin(pending)
    async with asyncio.timeout(WAIT_S):
        assert len([one async for one in opened(1, 3 * replay_throttle.BURST)]) == 3 * replay_throttle.BURST


async def test_soon_after_a_users_last_socket_has_closed_nothing_is_kept_of_them(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_throttle, "BURST_S", 0.0)
    throttle = replay_throttle.get_replay_throttle()
    async with throttle.opening(1):
        async with throttle.opening(1):
            assert 1 in throttle._openings
        assert 1 in throttle._openings
    await until_here(lambda: not throttle._openings)


async def test_sockets_that_are_closed_before_the_next_one_opens_are_a_crowd_as_well(
    accounts: None, pending: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENING_CALL_S", "OPENING_YIELD_MAX_S"):
        monkeypatch.setattr(replay_throttle, name, FOR_EVER_S)
    for _ in range(replay_throttle.BURST):
        assert len([one async for one in opened(1, 1)]) == 1
    replay_throttle.get_replay_throttle().begin(pending)
    late = asyncio.ensure_future(anext(opened(1, 1)))
    assert not (await asyncio.wait({late}, timeout=0.2))[0]
    replay_throttle.get_replay_throttle().end(pending)
    await late


async def test_of_several_readers_one_has_its_turn_in_each_round_of_the_event_loop() -> None:
    rounds: list[int] = [0]
    turns: list[int] = []

    async def count() -> None:
        while len(turns) < 3:
            rounds[0] += 1
            await asyncio.sleep(0)

    async def read() -> None:
        await replay_throttle.get_replay_throttle().yield_to_requests()
        turns.append(rounds[0])

    await asyncio.gather(count(), *(read() for _ in range(3)))
    assert len(set(turns)) == 3
