"""The native socket of one conversation: replay, live events, frames and their answers, streamed text."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest

from conversations import live as hints
from conversations.cursors import FINGERPRINT_LENGTH
from conversations.hints import EVENTS_MAX_CHARACTERS
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import changes, deletion
from sessions_app import astore
from sessions_app.agents.demo import INTRODUCTION
from sessions_app.live import hub, marks, status
from sessions_app.loops import manager
from sessions_app.loops.playing import streamed_answer
from sessions_app.sockets.native import conversation as native_socket
from sessions_app.sockets.native import reader as native_reader
from tests.conftest import Join
from tests.support.data.events import event, payload
from tests.support.people.clients import WAIT_S, Client
from tests.support.people.dictation import Dictate, dictate, end_answer, silence

pytestmark = pytest.mark.one_engine

__all__ = ["dictate", "silence"]


MEGABYTE = 1024 * 1024


def recorded(frame_id: Any, text: str = "noted") -> dict[str, Any]:
    return {"type": "event", "id": frame_id, "event": json.loads(payload(text))}


def message(text: str = "hello", **members: Any) -> dict[str, Any]:
    return {"type": "message", "text": text, **members}


def seqs(frames: Sequence[Mapping[str, Any]]) -> list[int]:
    return [frame["seq"] for frame in frames if frame["type"] == "event"]


def lose_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(group: str, hint: Mapping[str, Any]) -> None:
        pass

    monkeypatch.setattr(hints.hint_channel(), "group_send", lose)


class Commits:
    """The store's commits, held back until they are let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    async def wait_for_one(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, WAIT_S)


@pytest.fixture
def held_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commits]:
    """Hold every append open just before its transaction."""
    commits, real = Commits(), writes.append_many

    def append_many(*args: Any, **options: Any) -> Any:
        commits.begun.set()
        assert commits.let_go.wait(WAIT_S)
        return real(*args, **options)

    monkeypatch.setattr(writes, "append_many", append_many)
    yield commits
    commits.let_go.set()


async def stored_messages(conversation: ConversationRef) -> list[str]:
    rows = Event.objects.of(conversation).filter(kind="message", source="user").oldest_first()
    return await astore.call(lambda: list(rows.values_list("text", flat=True)))


# Replay


async def test_hello_comes_first_and_says_where_the_log_ends(
    conversation: ConversationRef, join: Join
) -> None:
    await astore.append(conversation, [event(), event()])
    hello = await (await join(conversation)).receive()
    assert (hello["type"], hello["conversation"]["id"], hello["last_seq"]) == ("hello", "talk", 1)
    assert (hello["seen_through"], hello["loop"]["status"]) == (-1, "stopped")


async def test_a_conversation_that_does_not_exist_is_made_by_its_join(join: Join) -> None:
    hello = await (await join("brand-new")).receive()
    assert (hello["conversation"]["id"], hello["last_seq"]) == ("brand-new", -1)


@pytest.mark.parametrize(("after", "expected"), [(-1, [0, 1, 2]), (0, [1, 2]), (1, [2]), (2, [])])
async def test_a_join_replays_what_is_after_its_cursor(
    conversation: ConversationRef, join: Join, after: int, expected: list[int]
) -> None:
    await astore.append(conversation, [event() for _ in range(3)])
    client = await join(conversation, after=after)
    assert seqs(await client.replayed()) == expected
    assert client.frames[-1] == {"type": "replay_complete", "through": 2}


@pytest.mark.no_second_try
async def test_a_replay_of_many_pages_brings_every_event_once(
    conversation: ConversationRef, join: Join
) -> None:
    for _ in range(3):
        await astore.append(conversation, [event() for _ in range(400)])
    assert seqs(await (await join(conversation)).replayed()) == list(range(1200))


async def test_an_event_is_shown_as_the_bytes_that_were_sent(
    conversation: ConversationRef, join: Join
) -> None:
    sent = (
        '{"action":"note", "a":1.10,\t"b":1E400, "c":123456789012345678901234567890, "d":"\\ud800 \\u0000 ü"}'
    )
    client = await join(conversation)
    await client.until("replay_complete")
    await client.send(f'{{ "event" : {sent} ,"type":"event"}}')
    assert (await client.receive_text()).endswith(f'"event":{sent}}}')


async def test_a_cursor_beyond_the_end_is_told_so_and_goes_on_live(
    conversation: ConversationRef, join: Join
) -> None:
    await astore.append(conversation, [event()])
    client = await join(conversation, after=7)
    error = await client.until("error")
    assert (error["code"], error["id"]) == ("cursor_ahead", None)
    assert (await client.until("replay_complete"))["through"] == 0
    await astore.append(conversation, [event()])
    assert seqs(await client.events(1)) == [1]


async def test_a_reader_goes_on_after_the_cursor_of_any_event(
    conversation: ConversationRef, join: Join
) -> None:
    await astore.append(conversation, [event() for _ in range(3)])
    replayed = await (await join(conversation)).replayed()
    for frame in replayed:
        follower = await join(conversation, after=frame["cursor"])
        assert seqs(await follower.replayed()) == list(range(frame["seq"] + 1, 3))


async def test_an_event_has_the_same_cursor_live_and_on_replay(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    await client.until("replay_complete")
    await astore.append(conversation, [event() for _ in range(3)])
    live = [frame["cursor"] for frame in await client.events(3)]
    assert live == [frame["cursor"] for frame in await (await join(conversation)).replayed()]


async def test_a_cursor_of_another_history_is_told_so_and_goes_on_live(
    conversation: ConversationRef, join: Join
) -> None:
    await astore.append(conversation, [event() for _ in range(3)])
    client = await join(conversation, after=f"1.{'0' * FINGERPRINT_LENGTH}")
    error = await client.until("error")
    assert (error["code"], error["id"]) == ("history_replaced", None)
    assert "read from the beginning" in error["detail"]
    assert (await client.until("replay_complete"))["through"] == 2
    await astore.append(conversation, [event()])
    assert seqs(client.frames) == []
    assert seqs(await client.events(1)) == [3]


WRONG_PARAMETERS: list[dict[str, str]] = [
    {"after": "x"},
    {"after": "1."},
    {"after": "1.0123456789ABCDEF"},
    {"after": "1.0123456789abcdef0"},
    {"after": "-1.0123456789abcdef"},
    {"after": "-2"},
    {"after": "1.5"},
    {"after": ""},
    {"after": "٣"},
    {"after": str(2**63)},
    {"after": "9" * 5_000},
    {"version": "V2"},
    {"version": "v0"},
    {"follow": "maybe"},
    {"payload": "no"},
    {"session": ""},
    {"session": "s" * 101},
]


@pytest.mark.one_engine
async def test_a_wrong_parameter_closes_with_4400(
    conversation: ConversationRef, join: Join, subtests: pytest.Subtests
) -> None:
    for query in WRONG_PARAMETERS:
        with subtests.test(str(query)[:40]):
            assert (await (await join(conversation, **query)).closed()).code == 4400


@pytest.mark.one_engine
async def test_an_id_that_can_name_nothing_closes_with_4400(join: Join, subtests: pytest.Subtests) -> None:
    for conversation_id in ["search", "a%00b", "a..b", "n" * 101]:
        with subtests.test(conversation_id=conversation_id):
            assert (await (await join(conversation_id)).closed()).code == 4400


# Live


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_two_readers_each_get_every_event_once_and_in_order(
    conversation: ConversationRef, join: Join
) -> None:
    readers = [await join(conversation) for _ in range(2)]
    await asyncio.gather(*(astore.append(conversation, [event()]) for _ in range(50)))
    for reader in readers:
        assert seqs(await reader.events(50)) == list(range(50))


@pytest.mark.no_second_try
@pytest.mark.parametrize("moment", ["before the read", "after the read"])
@pytest.mark.needs_engine
async def test_an_event_committed_during_replay_arrives_once(
    conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    await astore.append(conversation, [event()])
    real, reads = astore.read_after, 0

    async def read_after(ref: ConversationRef, seq: int, **bounds: int) -> Any:
        nonlocal reads
        reads += 1
        if (reads, moment) == (1, "before the read"):
            await astore.append(conversation, [event()])
        page = await real(ref, seq, **bounds)
        if (reads, moment) == (1, "after the read"):
            await astore.append(conversation, [event()])
        return page

    monkeypatch.setattr(astore, "read_after", read_after)
    client = await join(conversation)
    await client.until("replay_complete")
    await astore.append(conversation, [event()])
    await client.until("event", seq=2)
    assert seqs(client.frames) == [0, 1, 2]


@pytest.mark.no_second_try
async def test_an_event_too_large_for_a_hint_arrives_from_the_log(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    await client.until("replay_complete")
    await astore.append(conversation, [event("x" * EVENTS_MAX_CHARACTERS)])
    assert seqs(await client.events(1)) == [0]


@pytest.mark.no_second_try
async def test_what_a_lost_hint_announced_comes_with_the_next_one(
    hints_by_layer: None, conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, lost = hints.hint_channel().group_send, asyncio.Event()

    async def lose_one(group: str, hint: Mapping[str, Any]) -> None:
        if hint["kind"] == "appended" and not lost.is_set():
            lost.set()
        else:
            await send(group, hint)

    client = await join(conversation)
    await client.until("replay_complete")
    monkeypatch.setattr(hints.hint_channel(), "group_send", lose_one)
    await astore.append(conversation, [event()])
    await asyncio.wait_for(lost.wait(), WAIT_S)
    await astore.append(conversation, [event()])
    assert seqs(await client.events(2)) == [0, 1]


@pytest.mark.no_second_try
async def test_a_lost_hint_with_nothing_after_it_costs_one_poll(
    hints_by_layer: None, conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "POLL_S", 0.05)
    lose_hints(monkeypatch)
    client = await join(conversation)
    await client.until("replay_complete")
    await astore.append(conversation, [event()])
    assert seqs(await client.events(1)) == [0]


async def test_a_change_beside_the_log_is_shown_as_what_changed(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    await client.until("replay_complete")
    await astore.call(changes.retitle, conversation, "A new title")
    assert await client.receive() == {"type": "conversation", "changes": {"title": "A new title"}}


async def test_an_older_reading_is_never_shown_after_a_newer_one(
    conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await join(conversation)
    await client.until("replay_complete")
    real, has_read, may_go_on = status.states_of, threading.Event(), threading.Event()

    def held(pks: Any) -> Any:
        states = real(pks)
        if not has_read.is_set():
            has_read.set()
            may_go_on.wait(0.3)
        else:
            may_go_on.set()
        return states

    monkeypatch.setattr(hub, "states_of", held)
    await astore.call(changes.retitle, conversation, "older")
    assert await asyncio.to_thread(has_read.wait, WAIT_S)
    await astore.call(changes.retitle, conversation, "newer")
    again = asyncio.create_task(hub.hub()._offer_states({conversation.pk}))  # as the poll does
    shown = [(await client.until("conversation"))["changes"]["title"] for _ in range(2)]
    await again
    assert shown == ["older", "newer"]


async def test_a_second_reader_waits_until_the_first_has_joined_the_group(
    hints_by_layer: None, conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, joining, may_join = hints.hint_channel().group_add, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any) -> None:
        joining.set()
        await may_join.wait()
        await real(*args)

    monkeypatch.setattr(hints.hint_channel(), "group_add", slowly)
    first = await join(conversation)
    await joining.wait()
    second = await join(conversation)
    assert await second.receives_nothing(within_s=0.2)
    may_join.set()
    assert [(await each.receive())["type"] for each in (first, second)] == ["hello", "hello"]


def test_hints_that_wait_for_a_slow_reader_keep_few_events() -> None:
    waiting = hub.Subscription("conversation.1")
    for seq in range(hub.UNREAD_MAX):
        waiting.offer({"kind": "appended", "last_seq": seq, "events": [{"seq": seq}]})
    with_events = [hint for hint, _ in waiting._hints if hint["events"]]
    assert (len(waiting._hints), len(with_events)) == (hub.UNREAD_MAX, hub.UNREAD_WHOLE_MAX)


async def test_hints_that_wait_for_a_slow_reader_keep_little_text() -> None:
    waiting = hub.Subscription("conversation.1")
    for seq in range(10):
        waiting.offer({"kind": "appended", "last_seq": seq, "events": [{"seq": seq}]}, MEGABYTE // 4)
        waiting.offer({"kind": "delta", "index": seq}, MEGABYTE // 4)
    taken = [await waiting.next() for _ in range(12)]
    assert [hint["index"] for hint in taken if hint["kind"] == "delta"] == [0, 1]
    assert [bool(hint["events"]) for hint in taken if hint["kind"] == "appended"] == [True] * 2 + [False] * 8
    waiting.offer({"kind": "delta", "index": 10}, MEGABYTE // 4)
    assert (await waiting.next())["index"] == 10


async def test_a_deletion_is_shown_and_closes_with_4404(conversation: ConversationRef, join: Join) -> None:
    client = await join(conversation)
    await client.until("replay_complete")
    await astore.call(deletion.soft_delete, conversation)
    closed = await client.closed()
    assert client.frames[-1] == {"type": "conversation", "changes": {"deleted": True}}
    assert closed.code == 4404


async def test_a_state_that_was_read_before_somebody_joined_is_not_for_them(
    conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation was deleted, and brought back before its page joined again: 4404 would end that."""
    real, has_read, may_go_on = status.states_of, threading.Event(), threading.Event()
    first = await join(conversation)
    await first.until("replay_complete")

    def hold(pks: Sequence[int]) -> Any:
        states = real(pks)
        has_read.set()
        may_go_on.wait(WAIT_S)
        return states

    monkeypatch.setattr(hub, "states_of", hold)
    await astore.call(deletion.soft_delete, conversation)
    await asyncio.to_thread(has_read.wait, WAIT_S)
    await astore.call(deletion.restore, conversation)
    second = await join(conversation)
    await second.until("replay_complete")
    may_go_on.set()
    await first.closed()
    await astore.append(conversation, [event("still here")])
    assert (await second.until("event"))["text"] == "still here"


async def test_a_heartbeat_comes_when_nothing_else_does(
    conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_reader, "HEARTBEAT_S", 0.01)
    assert await (await join(conversation)).until("heartbeat") == {"type": "heartbeat"}


async def test_a_client_that_does_not_follow_is_shown_no_events_and_may_send(
    conversation: ConversationRef, join: Join
) -> None:
    await astore.append(conversation, [event()])
    client = await join(conversation, follow="false")
    await client.send(recorded("a"))
    assert [(await client.receive())["type"] for _ in range(2)] == ["hello", "ack"]


async def test_a_client_that_wants_no_payloads_is_shown_the_columns_alone(
    conversation: ConversationRef, join: Join
) -> None:
    await astore.append(conversation, [event()])
    whole = await (await join(conversation)).until("event")
    columns = await (await join(conversation, payload="false")).until("event")
    assert columns == {name: value for name, value in whole.items() if name != "event"}


# Frames and their answers


@pytest.mark.parametrize("frame_id", ["a", "ü " * 100, 0, 7, -1, 2**63 - 1, str(uuid4())], ids=repr)
async def test_a_frame_is_acknowledged_with_its_own_id(
    conversation: ConversationRef, join: Join, silence: None, frame_id: Any
) -> None:
    client = await join(conversation)
    await client.send(recorded(frame_id))
    assert await client.until("ack") == {"type": "ack", "id": frame_id, "seq": 0}
    await client.send(message(id=frame_id))
    assert await client.until("ack") == {"type": "ack", "id": frame_id, "seq": 1}


async def test_frames_without_an_id_are_not_acknowledged(conversation: ConversationRef, join: Join) -> None:
    client = await join(conversation)
    for frame in ({**recorded(None), "id": None}, {"type": "seen", "through": 0}, {"type": "auth"}):
        await client.send(frame)
    await client.send(recorded("a"))
    assert await client.until("ack") == {"type": "ack", "id": "a", "seq": 1}


@pytest.mark.needs_engine
async def test_acknowledgements_of_what_is_stored_come_in_the_order_of_the_frames(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation, follow="false")
    for number in range(100):
        await client.send(recorded(number))
    acks = [await client.until("ack") for _ in range(100)]
    assert [(ack["id"], ack["seq"]) for ack in acks] == [(number, number) for number in range(100)]


async def test_events_sent_together_are_acknowledged_together(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    items = [{"id": name, "event": json.loads(payload(name))} for name in ("a", "b", "a")]
    await client.send({"type": "events", "id": "x", "events": items})
    assert await client.until("ack") == {"type": "ack", "id": "x", "seqs": [0, 1, 0]}


async def test_an_event_repeated_with_other_bytes_is_a_conflict(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    await client.send(recorded("a", "one"))
    await client.send(recorded("a", "two"))
    error = await client.until("error")
    assert (error["code"], error["id"]) == ("conflict", "a")


WRONG: dict[str, tuple[Any, str, Any]] = {
    "no JSON": ("hello", "bad_frame", None),
    "nothing": (" ", "bad_frame", None),
    "an array": ("[]", "bad_frame", None),
    "NaN": ('{"type":"seen","through":NaN,"id":1}', "bad_frame", None),
    "nested too deeply": ("[" * 100_000, "bad_frame", None),
    "no type": ({"id": 1}, "bad_frame", None),
    "unknown type": ({"type": "jump", "id": 1}, "bad_frame", 1),
    "unsendable type": ({"type": "\ud800", "id": 1}, "bad_frame", 1),
    "blank message": (message(" \t", id=1), "bad_frame", 1),
    "id too long": (message(id="i" * 201), "bad_frame", None),
    "id empty": (message(id=""), "bad_frame", None),
    "id unsendable": (message(id="\ud800"), "bad_frame", None),
    "id a fraction": (message(id=1.5), "bad_frame", None),
    "id a boolean": (message(id=True), "bad_frame", None),
    "id too great": (message(id=2**63), "bad_frame", None),
    "message without text": ({"type": "message", "id": 1}, "bad_frame", 1),
    "event missing": ({"type": "event", "id": 1}, "bad_frame", 1),
    "event of no wire": ({"type": "event", "id": 1, "event": {}}, "invalid_event", 1),
    "event id with NUL": (recorded("a\0b"), "invalid_event", "a\0b"),
    "events empty": ({"type": "events", "id": 1, "events": []}, "bad_frame", 1),
    "events too many": ({"type": "events", "id": 1, "events": [{}] * 501}, "bad_frame", 1),
    "confirm without a decision": ({"type": "confirm", "id": 1}, "bad_frame", 1),
    "confirm with a number": ({"type": "confirm", "id": 1, "accept": 1}, "bad_frame", 1),
    "confirm of no number": ({"type": "confirm", "id": 1, "accept": True, "seq": "1"}, "bad_frame", 1),
    "confirm of no outcome": ({"type": "confirm", "id": 1, "outcome": "perhaps"}, "bad_frame", 1),
    "confirm of nothing": ({"type": "confirm", "id": 1, "accept": True}, "loop_unavailable", 1),
    "seen nothing": ({"type": "seen", "id": 1}, "bad_frame", 1),
    "seen too little": ({"type": "seen", "id": 1, "through": -2}, "bad_frame", 1),
    "seen too much": ({"type": "seen", "id": 1, "through": 2**63}, "bad_frame", 1),
}


@pytest.mark.one_engine
async def test_a_wrong_frame_is_answered_with_an_error_and_the_socket_goes_on(
    conversation: ConversationRef, join: Join, subtests: pytest.Subtests
) -> None:
    for number, (name, (frame, code, frame_id)) in enumerate(WRONG.items()):
        with subtests.test(name):
            client = await join(conversation)
            await client.send(frame)
            error = await client.until("error")
            assert (error["code"], error["id"]) == (code, frame_id)
            await client.send(recorded(f"good {number}"))
            assert (await client.until("ack"))["id"] == f"good {number}"


@pytest.mark.one_engine
async def test_a_binary_frame_is_answered_with_an_error(conversation: ConversationRef, join: Join) -> None:
    client = await join(conversation)
    await client.send_bytes(b'{"type":"auth","id":1}')
    assert (await client.until("error"))["detail"] == "Frames are text, not binary."


async def test_a_failure_of_the_server_is_told_the_sender_and_the_socket_goes_on(
    conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("the database is gone")

    monkeypatch.setattr(marks, "mark_seen", fail)
    client = await join(conversation)
    await client.send({"type": "seen", "id": 1, "through": 0})
    error = await client.until("error")
    assert (error["code"], error["id"]) == ("unavailable", 1)
    await client.send(recorded("good"))
    assert (await client.until("ack"))["id"] == "good"


# What is stored, and under which id


async def test_a_message_in_a_conversation_of_v1_is_an_event_of_v1(join: Join, silence: None) -> None:
    client = await join("new", version="V1")
    await client.send(message("hi", images=["data:image/png;base64,AA=="]))
    shown = await client.until("event", kind="message")
    assert (shown["dialect"], shown["event_type"], shown["source"]) == ("v1", "MessageEvent", "user")
    assert (shown["text"], shown["event"]["kind"]) == ("hi", "MessageEvent")


async def test_a_join_never_changes_what_exists(conversation: ConversationRef, join: Join) -> None:
    def row() -> Any:
        return Conversation.objects.values().get(pk=conversation.pk)

    before = await astore.call(row)
    hello = await (await join(conversation, version="V1")).receive()
    assert hello["conversation"]["version"] == "V0"
    assert await astore.call(row) == before


async def test_a_message_survives_characters_that_no_column_takes(
    conversation: ConversationRef, join: Join, silence: None
) -> None:
    client = await join(conversation)
    await client.send(message("a\0b\ud800c", id=1))
    shown = await client.until("event", kind="message")
    assert (shown["text"], shown["event"]["args"]["content"]) == ("a\ufffdb\ufffdc", "a\0b\ud800c")


async def test_two_tabs_may_both_number_their_messages_from_1(
    conversation: ConversationRef, join: Join, silence: None
) -> None:
    for text in ("from one", "from two"):
        client = await join(conversation)
        await client.send(message(text, id=1))
        await client.until("ack", id=1)
    assert await stored_messages(conversation) == ["from one", "from two"]


@pytest.mark.no_second_try
async def test_a_session_that_comes_back_and_repeats_a_message_stores_it_once(
    conversation: ConversationRef, join: Join, silence: None
) -> None:
    acks = []
    for _ in range(2):
        client = await join(conversation, session="tab")
        await client.send(message("hi", id=1))
        acks.append(await client.until("ack", id=1))
    assert acks[0] == acks[1]
    assert await stored_messages(conversation) == ["hi"]


async def test_hello_names_a_session_to_come_back_with(
    conversation: ConversationRef, join: Join, silence: None
) -> None:
    first = await join(conversation)
    session = (await first.until("hello"))["session"]
    await first.send(message("hi", id=1))
    ack = await first.until("ack")
    second = await join(conversation, session=session)
    await second.send(message("hi", id=1))
    assert await second.until("ack") == ack


async def test_a_uuid_needs_no_session(conversation: ConversationRef, join: Join, silence: None) -> None:
    frame = message("hi", id=str(uuid4()))
    for _ in range(2):
        client = await join(conversation)
        await client.send(frame)
        await client.until("ack")
    assert await stored_messages(conversation) == ["hi"]


async def test_the_id_of_a_message_is_never_that_of_an_event(
    conversation: ConversationRef, join: Join, silence: None
) -> None:
    frame_id = str(uuid4())
    client = await join(conversation)
    await client.send(message("said", id=frame_id))
    await client.send(recorded(frame_id))
    assert [(await client.until("ack"))["id"] for _ in range(2)] == [frame_id, frame_id]


async def test_an_event_keeps_its_own_id_where_its_wire_has_one(
    conversation: ConversationRef, join: Join
) -> None:
    own = str(uuid4())
    client = await join(conversation)
    await client.send({"type": "event", "id": "frame", "event": {"kind": "PauseEvent", "id": own}})
    assert (await client.until("event"))["id"] == own


# Steering


async def until_loop_is(client: Client, status: str) -> None:
    while True:
        changes = (await client.until("conversation"))["changes"]
        if "loop" in changes and changes["loop"]["execution_status"] == status:
            return


async def test_a_message_is_answered_and_a_recorded_one_is_not(
    conversation: ConversationRef, join: Join
) -> None:
    client = await join(conversation)
    await client.send(recorded("a", "only noted"))
    await client.send(message("good morning"))
    answer = await client.until("event", kind="message", source="agent")
    assert answer["text"].startswith("You said: good morning")


@pytest.mark.needs_engine
async def test_a_message_is_answered_although_its_sender_leaves_before_the_commit(
    conversation: ConversationRef, join: Join, held_commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "SWEEP_S", 3_600)  # which would find it, too
    reader, sender = await join(conversation), await join(conversation)
    await sender.until("replay_complete")
    await sender.send(message("good morning"))
    await held_commits.wait_for_one()
    await sender.leave()
    held_commits.let_go.set()
    answer = await reader.until("event", kind="message", source="agent")
    assert answer["text"].startswith("You said: good morning")


async def test_no_more_is_read_of_a_sender_while_too_much_of_it_waits_for_its_commit(
    conversation: ConversationRef, join: Join, held_commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_socket, "UNANSWERED_MAX_CHARACTERS", 1_000)
    client = await join(conversation, follow="false")
    await client.until("hello")
    await client.send(recorded("long", "x" * 1_000))
    await held_commits.wait_for_one()
    await client.send({"type": "nonsense", "id": "after"})  # answered at once, if it is read
    assert await client.receives_nothing(within_s=0.2)
    held_commits.let_go.set()
    assert [(await client.receive())["id"] for _ in range(2)] == ["long", "after"]


async def test_pause_holds_answers_back_until_run(conversation: ConversationRef, join: Join) -> None:
    client = await join(conversation)
    await client.send({"type": "pause", "id": 1})
    await client.until("ack", id=1)
    await client.send(message("wait for me", id=2))
    await client.until("ack", id=2)
    hello = await (await join(conversation)).receive()
    assert (hello["loop"]["execution_status"], hello["conversation"]["last_message"]) == (
        "paused",
        "wait for me",
    )
    await client.send({"type": "run"})
    answer = await client.until("event", kind="message", source="agent")
    assert answer["text"].startswith("You said: wait for me")


async def test_stop_ends_the_loop(conversation: ConversationRef, join: Join) -> None:
    client = await join(conversation)
    for number, frame_type in enumerate(("run", "stop")):
        await client.send({"type": frame_type, "id": number})
        await client.until("ack", id=number)
    hello = await (await join(conversation)).receive()
    assert hello["loop"]["status"] == "stopped"


async def test_a_call_that_waits_is_rejected_for_a_reason(conversation: ConversationRef, join: Join) -> None:
    client = await join(conversation)
    await client.send(message("/approve"))
    await until_loop_is(client, "waiting_for_confirmation")
    await client.send({"type": "confirm", "id": 1, "accept": False, "reason": "too\0risky"})
    await client.until("ack", id=1)
    assert (await client.until("event", kind="message", source="agent"))["text"] == (
        f"OK, I won't.\n\n{INTRODUCTION}"
    )


# What has been seen


async def test_what_was_seen_is_told_at_the_next_join(conversation: ConversationRef, join: Join) -> None:
    await astore.append(conversation, [event() for _ in range(3)])
    client = await join(conversation)
    for through in (1, 0):  # it never goes back
        await client.send({"type": "seen", "id": through, "through": through})
        await client.until("ack", id=through)
    assert (await (await join(conversation)).receive())["seen_through"] == 1


async def test_nobody_has_seen_more_than_there_is(conversation: ConversationRef, join: Join) -> None:
    await astore.append(conversation, [event()])
    client = await join(conversation)
    await client.send({"type": "seen", "id": 1, "through": 2**63 - 1})
    await client.until("ack", id=1)
    assert (await (await join(conversation)).receive())["seen_through"] == 0


# Streamed answers


def assembled(frames: Sequence[Mapping[str, Any]]) -> str:
    """Put the pieces of the one answer together; fail if one is missing or out of order."""
    text, following = "", 0
    for frame in frames:
        match frame["type"]:
            case "answer":
                text, following = frame["text"], frame["through"] + 1
            case "delta":
                assert frame["index"] == following
                text, following = text + frame["text"], following + 1
    return text


async def test_a_reader_from_the_start_gets_every_piece_of_an_answer(
    conversation: ConversationRef, join: Join, dictate: Dictate
) -> None:
    words = [f"word {number} " for number in range(50)]
    client = await join(conversation)
    await client.send(message())
    await dictate(*words)
    while assembled(client.frames) != "".join(words):  # until then the stored message might overtake
        await client.receive()
    end_answer()
    assert (await client.until("event", kind="message", source="agent"))["text"] == "".join(words)


@pytest.mark.needs_engine
async def test_a_reader_who_comes_late_gets_a_snapshot_and_only_what_follows_it(
    conversation: ConversationRef, join: Join, dictate: Dictate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_answer, "SNAPSHOT_S", 0.0)
    await (await join(conversation)).send(message())
    await dictate("a", "b", "c")
    late = await join(conversation)
    snapshot = await late.until("answer")
    assert (snapshot["text"], snapshot["through"]) == ("abc", 2)
    await dictate("d", "e")
    while assembled(late.frames) != "abcde":  # until then the stored message might overtake
        await late.receive()
    end_answer()
    stored = await late.until("event", kind="message", source="agent")
    assert stored["text"] == "abcde"
    assert {snapshot["answer"]} == {stored["id"]}


async def test_a_reader_whose_snapshot_is_old_still_ends_with_the_stored_text(
    conversation: ConversationRef, join: Join, dictate: Dictate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_answer, "SNAPSHOT_S", 1_000.0)
    await (await join(conversation)).send(message())
    await dictate("a", "b", "c")
    late = await join(conversation)
    assert (await late.until("answer"))["text"] == "a"
    await dictate("d")
    end_answer()
    stored = await late.until("event", kind="message", source="agent")
    assert stored["text"].startswith(assembled(late.frames))
    assert stored["text"] == "abcd"


async def test_a_reader_after_the_end_of_an_answer_gets_no_pieces_of_it(
    conversation: ConversationRef, join: Join, dictate: Dictate
) -> None:
    client = await join(conversation)
    await client.send(message())
    await dictate("a", "b")
    end_answer()
    await client.until("event", kind="turn")
    late = await join(conversation)
    await late.until("replay_complete")
    await late.send(recorded("x"))
    await late.until("ack")
    assert not {"delta", "answer"} & {frame["type"] for frame in late.frames}


async def test_a_reader_that_leaves_while_it_subscribes_is_gone(live: None) -> None:
    async def follow() -> None:
        async with hub.hub().subscribe("conversation.1") as hints:
            await hints.next()

    for moment in range(40):
        reader = asyncio.create_task(follow())
        for _ in range(moment):
            await asyncio.sleep(0.0001)  # each round is cancelled a little later
        reader.cancel()
        await asyncio.wait({reader}, timeout=WAIT_S)
        assert reader.cancelled()
        await hub.close()
