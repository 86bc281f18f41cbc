"""The socket of a program that plays an agent's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import EventEnvelope
from conversations.exceptions import Fenced
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.remote import attachments, remote_turn, turn_frames
from sessions_app.agents.remote.names import not_connected
from sessions_app.agents.remote.programs import UNSENT_MAX, WAITING_MAX, Program, ProgramPlace
from sessions_app.agents.remote.remote_turn import step_event_id
from sessions_app.agents.remote.steps import Done
from sessions_app.live.hub import hub
from sessions_app.loops.manager import close_manager
from sessions_app.models import ApiToken, Grant, RemoteProgram
from sessions_app.processes import this_process
from sessions_app.settings import run_options
from sessions_app.sockets.native import agent as agent_socket
from tests.conftest import Dial, Join
from tests.support.people.clients import Client
from tests.support.people.remote_agents import Helper, attach

pytestmark = pytest.mark.one_engine


@pytest.fixture
def talk(conversation: ConversationRef) -> ConversationRef:
    """A conversation whose agent is the program `helper`."""
    run_options.change(conversation, {"agent": "remote:helper"})
    return conversation


@pytest.fixture
def short_grace(configured: Callable[..., None]) -> None:
    """Let turns wait for no program."""
    configured(remote_grace_s=0)


async def follow(join: Join, talk: ConversationRef, **options: Any) -> Client:
    """Join the conversation, and return once everything in it was sent."""
    client = await join(talk, **options)
    await client.until("replay_complete")
    return client


async def say(client: Client, text: str) -> None:
    await client.send({"type": "message", "text": text})


async def events(talk: ConversationRef) -> list[EventEnvelope]:
    return await astore.call(reads.read_after, talk, -1)


async def said(talk: ConversationRef) -> list[str]:
    return [
        each["text"] for each in await events(talk) if each["kind"] == "message" and each["source"] == "agent"
    ]


async def loop_of(client: Client, **members: str) -> dict[str, str]:
    """Return the loop once it is shown to be like this."""
    loop = next(frame["loop"] for frame in client.frames if frame["type"] == "hello")
    for frame in client.frames:
        loop = frame.get("changes", {}).get("loop", loop)
    while not members.items() <= loop.items():
        loop = (await client.until("conversation"))["changes"].get("loop", loop)
    return dict(loop)


# A turn


async def test_a_program_is_handed_the_message_and_its_answer_is_stored(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    turn = await helper.take()
    assert [(each["seq"], each["text"]) for each in turn["inputs"]] == [(0, "Good morning")]
    assert turn["conversation"] == talk.public_id
    ack = await helper.step("say", "a", text="Good evening")
    assert (await helper.step("done", "z"))["type"] == "ack"
    event = await reader.until("event", kind="message", source="agent")
    assert (event["seq"], event["text"]) == (ack["seq"], "Good evening")
    assert event["id"] == step_event_id(turn["turn"], "a")
    await reader.until("event", kind="turn")
    assert (await loop_of(reader, execution_status="finished"))["agent"] == "remote:helper"


async def test_readers_see_an_answer_grow_and_it_is_stored_under_the_id_that_they_saw(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    turn = await helper.take()
    await helper.send("think", answer="a", index=0, text="They greet me.")
    for index, text in enumerate(["Good", " evening"], start=1):
        await helper.send("delta", answer="a", index=index, text=text)
    pieces = [await reader.until("delta") for _ in range(3)]
    assert [piece["text"] for piece in pieces] == ["", "Good", " evening"]
    assert pieces[0]["reasoning"] == "They greet me."
    ack = await helper.step("say", "a")
    event = await reader.until("event", kind="message", source="agent")
    assert (event["seq"], event["text"]) == (ack["seq"], "Good evening")
    assert {event["id"]} == {piece["answer"] for piece in pieces} == {step_event_id(turn["turn"], "a")}


async def test_the_text_of_a_say_stands_in_place_of_what_was_streamed(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    await helper.send("delta", answer="a", index=0, text="Good evning")
    await helper.step("say", "a", text="Good evening")
    assert await said(talk) == ["Good evening"]


async def test_what_a_program_sends_after_pieces_ends_their_answer_as_it_is(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    await helper.send("delta", answer="a", index=0, text="One moment.")
    await helper.step("call", "b", name="run", arguments={"command": "date"})
    await helper.step("done", "z")
    assert await said(talk) == ["One moment."]


@pytest.mark.parametrize("version", Version)
async def test_a_call_and_its_result_are_stored_in_the_conversations_own_wire(
    alice: User, join: Join, dial: Dial, version: Version
) -> None:
    talk = await astore.call(creation.create, alice, conversation_id="calls", version=version)
    await astore.call(run_options.change, talk, {"agent": "remote:helper"})
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "What time is it?")
    await helper.take()
    ack = await helper.step("call", "b", name="run", arguments={"command": "date"}, thought="I look.")
    assert (ack["accepted"], ack["result"], "repeated" in ack) == (None, None, False)
    await helper.step("result", "c", call="b", content="noon")
    assert (await helper.step("finish", "d", text="It is noon."))["type"] == "ack"
    call = await reader.until("event", kind="tool_call")
    result = await reader.until("event", kind="tool_result")
    assert (call["dialect"], result["cause"]) == (version.lower(), ack["seq"])
    await reader.until("event", kind="turn")
    assert "It is noon." in [each["text"] for each in await events(talk)]


async def test_a_call_that_asks_waits_for_the_user_and_its_program_is_told_what_they_say(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Clean up")
    turn = await helper.take()
    call = {"name": "run", "arguments": {"command": "rm -r build"}, "ask": True}
    await helper.send("call", id="b", **call)
    suspended = await helper.client.until("suspend", turn=turn["turn"], id="b")
    await loop_of(reader, execution_status="waiting_for_confirmation")
    await reader.send({"type": "confirm", "id": "yes", "accept": True, "seq": suspended["seq"]})
    again = await helper.take()
    (decision,) = again["decisions"]
    assert (again["turn"], decision["accepted"]) == (turn["turn"], True)
    assert decision["call"]["arguments"] == {"command": "rm -r build"}
    repeated = await helper.step("call", "b", **call)
    assert (repeated["seq"], repeated["accepted"], repeated["result"]) == (suspended["seq"], True, None)
    assert repeated["repeated"] is True
    await helper.step("result", "c", call="b", content="removed")
    await helper.step("done", "z")
    await reader.until("event", kind="turn")
    kinds = [each["kind"] for each in await events(talk)]
    assert (kinds.count("tool_call"), kinds.count("tool_result")) == (1, 1)


async def test_a_program_that_cuts_an_emoji_in_two_is_understood_and_is_sent_no_half(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "How is the weather?")
    await helper.take()
    for index, piece in enumerate(("It rains \ud83c", "\udf27 and \udf27")):
        await helper.send("delta", answer="a", index=index, text=piece)
    call = {"name": "look\ud83c", "arguments": {"at": "the sky \ud83c", "\udf27": ["\udf27"]}, "ask": True}
    await helper.send("call", id="b", **call)
    suspended = await helper.client.until("suspend", id="b")
    await loop_of(reader, execution_status="waiting_for_confirmation")
    await reader.send({"type": "confirm", "id": "yes", "accept": True, "seq": suspended["seq"]})
    (decision,) = (await helper.take())["decisions"]
    assert decision["call"]["arguments"] == {"at": "the sky \ufffd", "\ufffd": ["\ufffd"]}
    await helper.step("result", "c", call="b", content="grey \udf27")
    await helper.step("fail", "z", text="no more \ud83c")
    await reader.until("event", kind="turn")
    assert (await said(talk))[-1] == "It rains 🌧 and \ufffd"


async def test_a_rejected_call_has_its_result_when_the_program_is_handed_the_turn_again(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Clean up")
    await helper.take()
    await helper.send("call", id="b", name="run", arguments={"command": "rm -r build"}, ask=True)
    seq = (await helper.client.until("suspend"))["seq"]
    await loop_of(reader, execution_status="waiting_for_confirmation")
    await reader.send({"type": "confirm", "id": "no", "accept": False, "reason": "Not today."})
    await helper.take()
    repeated = await helper.step("call", "b", name="run", arguments={}, ask=True)
    assert (repeated["accepted"], repeated["result"]["cause"]) == (False, seq)
    assert "Not today." in repeated["result"]["text"]


async def test_a_program_pauses_with_a_notice_and_counts_what_its_model_used(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    turn = await helper.take()
    counted = {"model": "openai/gpt-5", "prompt_tokens": 7, "completion_tokens": 3, "cost": 0.5}
    for _ in range(2):
        await helper.step("usage", "u", **counted)
    await helper.send("pause", id="p", text="I need a break.")
    await helper.client.until("suspend", turn=turn["turn"], id="p")
    notices = [each["text"] for each in await events(talk) if each["kind"] == "other"]
    assert (notices, await said(talk)) == (["I need a break."], [])
    await loop_of(reader, execution_status="paused")
    row = await astore.call(lambda: Conversation.objects.get(pk=talk.pk))
    assert (row.accumulated_cost, row.prompt_tokens, row.completion_tokens) == (0.5, 7, 3)


async def test_a_program_that_fails_says_why_in_the_log(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    await helper.step("fail", "f", text="The model is out of order.")
    event = await reader.until("event", kind="error")
    assert event["text"] == "The model is out of order."
    await loop_of(reader, execution_status="error")


async def test_turns_of_several_conversations_are_played_over_one_socket(
    alice: User, join: Join, dial: Dial
) -> None:
    helper, readers = await attach(dial), {}
    for name in ("one", "two"):
        talk = await astore.call(creation.create, alice, conversation_id=name)
        await astore.call(run_options.change, talk, {"agent": "remote:helper"})
        readers[name] = await follow(join, talk)
        await say(readers[name], f"I am {name}")
    turns = {turn["conversation"]: turn for turn in [await helper.take(), await helper.take()]}
    for name, reader in readers.items():
        helper.turn = turns[name]
        await helper.step("say", "a", text=f"You are {name}")
        await reader.until("event", source="agent", text=f"You are {name}")


# Pause, stop


async def test_a_pause_between_two_steps_suspends_the_turn_which_goes_on_when_it_is_resumed(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    turn = await helper.take()
    ack = await helper.step("say", "a", text="Good")
    await reader.send({"type": "pause", "id": "pause"})
    await helper.client.until("suspend", turn=turn["turn"])
    assert (await helper.step("say", "b", text="evening"))["code"] == "fenced"
    await loop_of(reader, execution_status="paused")
    await reader.send({"type": "run", "id": "run"})
    again = await helper.take()
    assert again["turn"] == turn["turn"]
    assert [(each["seq"], each["text"]) for each in again["done"]] == [(ack["seq"], "Good")]
    assert await helper.step("say", "a", text="Good") == {**ack, "repeated": True}
    await helper.step("say", "b", text="evening")
    assert await said(talk) == ["Good", "evening"]


async def test_a_pause_in_the_middle_of_an_answer_or_a_call_takes_effect_after_it(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    await helper.step("call", "b", name="run", arguments={"command": "date"})
    await reader.send({"type": "pause", "id": "pause"})
    await helper.client.until("pause")
    assert (await helper.step("result", "c", call="b", content="noon"))["type"] == "ack"
    await helper.client.until("suspend")
    await reader.send({"type": "run", "id": "run"})
    await helper.take()
    await helper.step("delta", "d", answer="a", index=0, text="It is ")
    await reader.send({"type": "pause", "id": "again"})
    await helper.client.until("pause")
    await helper.step("say", "a", text="It is noon.")
    await helper.client.until("suspend")
    assert await said(talk) == ["It is noon."]


async def test_a_stop_ends_the_turn_and_what_its_program_still_sends_is_refused(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    turn = await helper.take()
    await helper.step("delta", "d", answer="a", index=0, text="Good")
    await reader.send({"type": "stop", "id": "stop"})
    await helper.client.until("stop", turn=turn["turn"])
    assert (await helper.step("say", "a", text="Good evening"))["code"] == "fenced"
    await reader.until("event", kind="turn")
    assert await said(talk) == ["Good"]


async def test_a_turn_that_waits_for_approval_can_be_stopped_while_no_program_is_there(
    talk: ConversationRef, join: Join, dial: Dial, short_grace: None
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Clean up")
    await helper.take()
    await helper.send("call", id="b", name="run", arguments={"command": "rm -r build"}, ask=True)
    await loop_of(reader, execution_status="waiting_for_confirmation")
    await close_manager()
    await helper.client.leave()
    await reader.send({"type": "stop", "id": "stop"})
    await reader.until("ack", id="stop")
    assert [each["kind"] for each in await events(talk)].count("turn") == 1


# Programs that come and go


async def test_nobody_is_told_as_answered_while_no_program_is_connected(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader = await follow(join, talk)
    await say(reader, "Good morning")
    loop = await loop_of(reader, status="error")
    assert loop["error"] == not_connected("helper")
    helper = await attach(dial)
    turn = await helper.take()
    assert [each["text"] for each in turn["inputs"]] == ["Good morning"]
    assert (await loop_of(reader, status="running"))["error"] == ""


async def test_that_the_program_is_missing_is_forgotten_once_it_comes_where_nothing_is_asked(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader = await follow(join, talk)
    await reader.send({"type": "run", "id": "run"})
    answer = await reader.until("error", id="run")
    assert (answer["code"], answer["detail"]) == ("loop_unavailable", not_connected("helper"))
    await loop_of(reader, status="error")
    await attach(dial)
    await loop_of(reader, status="stopped", error="")


async def test_the_next_program_goes_on_with_the_turn_and_nothing_is_stored_twice(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, first = await follow(join, talk), await attach(dial)
    await say(reader, "What time is it?")
    turn = await first.take()
    call = await first.step("call", "b", name="run", arguments={"command": "date"})
    await first.step("result", "c", call="b", content="noon")
    await first.step("delta", "d", answer="a", index=0, text="It is")
    await first.client.leave()
    second = await attach(dial)
    again = await second.take()
    assert (again["turn"], again["epoch"]) == (turn["turn"], turn["epoch"])
    assert [each["kind"] for each in again["done"]] == ["tool_call", "tool_result"]
    assert again["answer"] == {"answer": "a", "index": 1}
    repeated = await second.step("call", "b", name="run", arguments={"command": "date"})
    assert (repeated["seq"], repeated["repeated"]) == (call["seq"], True)
    assert repeated["result"]["text"] == "noon"
    assert (await second.step("result", "c", call="b", content="noon"))["repeated"] is True
    for index, text in enumerate(["It is", " noon."]):
        await second.step("delta", f"d{index}", answer="a", index=index, text=text)
    await second.step("say", "a")
    await second.step("done", "z")
    await reader.until("event", kind="turn")
    assert await said(talk) == ["It is noon."]
    kinds = [each["kind"] for each in await events(talk)]
    assert (kinds.count("tool_call"), kinds.count("tool_result"), kinds.count("turn")) == (1, 1, 1)


async def test_a_turn_whose_program_does_not_come_back_ends_with_a_sentence_and_what_was_said(
    talk: ConversationRef, join: Join, dial: Dial, short_grace: None
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    await helper.step("delta", "d", answer="a", index=0, text="Good")
    await helper.client.leave()
    event = await reader.until("event", kind="error")
    assert "helper lost its connection" in event["text"]
    await reader.until("event", kind="turn")
    assert await said(talk) == ["Good"]
    await say(reader, "Are you there?")
    await loop_of(reader, status="error", error=not_connected("helper"))
    returned = await attach(dial)
    assert [each["text"] for each in (await returned.take())["inputs"]] == ["Are you there?"]


async def test_a_newer_program_takes_the_place_of_an_older_one_whose_late_frames_are_fenced(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, older = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    turn = await older.take()
    newer = await attach(dial)
    assert (await older.client.until("fenced"))["turn"] is None
    late = await older.step("say", "a", text="From the older one")
    assert (late["type"], late["code"]) == ("error", "fenced")
    closed = await older.client.closed()
    assert (closed.code, closed.reason) == (4409, agent_socket.TAKEN_OVER)
    assert (await newer.take())["turn"] == turn["turn"]
    await newer.step("say", "a", text="From the newer one")
    assert await said(talk) == ["From the newer one"]
    row = await astore.call(RemoteProgram.objects.with_presence().get)
    assert (row.number, row.is_connected) == (2, True)


async def test_a_program_of_another_process_takes_the_place_as_well(
    talk: ConversationRef, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_socket, "LINGER_S", 0.0)
    helper = await attach(dial)
    elsewhere = this_process()._replace(host="elsewhere")
    await astore.change(attachments.attach, talk.owner_id, "helper", None, elsewhere)
    assert (await helper.client.closed()).code == 4409


async def test_a_message_for_a_program_of_another_process_is_left_to_that_process(
    talk: ConversationRef, join: Join
) -> None:
    elsewhere = this_process()._replace(host="elsewhere")
    found = await astore.change(attachments.attach, talk.owner_id, "helper", None, elsewhere)
    reader = await follow(join, talk)
    async with hub().subscribe(found.group) as hints:
        await say(reader, "Good morning")
        hint = await hints.next()
        assert (hint["kind"], hint["conversation"]) == ("wake", talk.pk)
    assert (await loop_of(reader))["error"] == ""


async def test_the_program_of_one_conversation_plays_its_turns_before_that_of_all(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, of_all = await follow(join, talk), await attach(dial)
    own = await attach(dial, query={"conversation": talk.public_id})
    assert own.client.frames[0]["conversation"] == talk.public_id
    await say(reader, "Good morning")
    await own.take()
    await own.step("done", "z")
    await reader.until("event", kind="turn")
    assert "turn" not in [frame["type"] for frame in of_all.client.frames]


async def test_a_strangers_program_of_the_same_name_is_handed_nothing(
    talk: ConversationRef, alice: User, bob: User, join: Join, dial: Dial, accounts: None
) -> None:
    def token(user: User) -> str:
        return ApiToken.issue(user.pk, "laptop", Grant())[1]

    reader = await follow(join, talk, token=await astore.call(token, alice))
    stranger = Helper(await dial("/ws/agents/helper", token=await astore.call(token, bob)))
    await stranger.client.until("hello")
    await say(reader, "Good morning")
    await loop_of(reader, error=not_connected("helper"))
    assert [frame["type"] for frame in stranger.client.frames] == ["hello"]


# What makes no sense, and bounds


async def test_steps_that_make_no_sense_are_refused_and_the_turn_goes_on(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    await helper.step("call", "b", name="run", arguments={"command": "date"})
    refused: dict[str, dict[str, Any]] = {
        "no id": {"type": "say", "text": "?"},
        "nothing to say": {"type": "say", "id": "1"},
        "a blank text": {"type": "say", "id": "2", "text": " "},
        "a gap": {"type": "delta", "id": "3", "answer": "a", "index": 5, "text": "?"},
        "no such call": {"type": "result", "id": "4", "call": "x", "content": "?"},
        "no arguments": {"type": "call", "id": "5", "name": "run", "arguments": []},
        "no such frame": {"type": "sing", "id": "6"},
        "another epoch": {"type": "say", "id": "7", "text": "?", "epoch": 0},
        "another turn": {"type": "say", "id": "8", "text": "?", "turn": "0"},
        "an id that a call has": {"type": "say", "id": "b", "text": "?"},
        "a cost": {
            "type": "usage",
            "id": "9",
            "model": "m",
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "cost": -1,
        },
    }
    codes = {}
    for name, frame in refused.items():
        await helper.client.send({"turn": helper.turn["turn"], "epoch": helper.turn["epoch"], **frame})
        codes[name] = (await helper.client.until("error"))["code"]
    expected = dict.fromkeys(refused, "bad_frame")
    assert codes == expected | {
        "another epoch": "fenced",
        "another turn": "fenced",
        "an id that a call has": "conflict",
    }
    await helper.step("say", "a", text="Good evening")
    assert await said(talk) == ["Good evening"]


async def test_a_frame_that_is_too_long_is_refused(dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_socket, "FRAME_MAX_CHARACTERS", 100)
    helper = await attach(dial)
    await helper.client.send({"type": "say", "id": "1", "text": "x" * 100})
    assert (await helper.client.until("error"))["code"] == "too_large"
    await helper.client.send_bytes(b"{}")
    assert (await helper.client.until("error"))["code"] == "bad_frame"


async def test_an_answer_that_grows_too_long_is_refused_and_can_be_ended(
    talk: ConversationRef, join: Join, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_turn, "ANSWER_MAX_CHARACTERS", 10)
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Tell me all")
    await helper.take()
    await helper.step("think", "a0", answer="a", index=0, text="Well")
    assert (await helper.step("delta", "a1", answer="a", index=1, text="I know"))["type"] == "ack"
    refused = await helper.step("delta", "a2", answer="a", index=2, text=" all")
    assert (refused["type"], refused["code"]) == ("error", "bad_frame")
    await helper.step("say", "a")
    await helper.step("done", "z")
    await reader.until("event", kind="turn")
    assert await said(talk) == ["I know"]


async def test_a_program_is_refused_where_the_operator_offers_none(
    dial: Dial, configured: Callable[..., None]
) -> None:
    configured(agents=("demo",))
    closed = await (await dial("/ws/agents/helper")).closed()
    assert (closed.code, "lets no programs outside it play" in closed.reason) == (4403, True)


async def test_a_name_that_is_none_is_refused(dial: Dial) -> None:
    client = await dial("/ws/agents/%20")
    assert (await client.closed()).code == 4400


async def test_a_turn_frame_is_bounded_and_says_that_something_was_left_out(
    talk: ConversationRef, join: Join, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_frames, "SHOWN_MAX_CHARACTERS", 10)
    reader = await follow(join, talk)
    for text in ("the first message", "the second message"):
        await say(reader, text)
        await reader.until("event", text=text)
    turn = await (await attach(dial)).take()
    assert [each["text"] for each in turn["inputs"]] == ["the second message"]
    assert turn["has_earlier"] is True


async def test_of_a_long_turn_the_next_program_is_shown_the_newest_events(
    talk: ConversationRef, join: Join, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "PAGE_MAX_EVENTS", 2)
    reader, first = await follow(join, talk), await attach(dial)
    await say(reader, "Count")
    await first.take()
    for text in ("one", "two", "three"):
        await first.step("say", text, text=text)
    await first.client.leave()
    second = await attach(dial)
    turn = await second.take()
    assert [each["text"] for each in turn["done"]] == ["two", "three"]
    assert turn["has_earlier"] is True
    await second.step("done", "z")
    await reader.until("event", kind="turn")


# Calls that must not run twice, limits, new messages


async def test_a_call_is_started_once_whichever_program_comes(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    reader, first = await follow(join, talk), await attach(dial)
    await say(reader, "Clean up")
    await first.take()
    await first.step("call", "b", name="run", arguments={"command": "rm -r build"})
    assert (await first.step("start", "s", call="b"))["key"]
    await first.client.leave()
    second = await attach(dial)
    await second.take()
    refused = await second.step("start", "s", call="b")
    assert (refused["type"], refused["code"]) == ("error", "call_refused")
    await second.step("result", "c", call="b", content="Nobody knows.", exit_code=1)
    await second.step("done", "z")
    await reader.until("event", kind="turn")


async def test_a_turn_whose_limit_is_reached_waits_for_the_user(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    await astore.call(run_options.change, talk, {"max_turn_iterations": 1})
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    model = {"model": "openai/gpt-5", "prompt_tokens": 7, "completion_tokens": 0, "cost": 0.1}
    assert (await helper.step("reserve", "r1", **model))["type"] == "ack"
    await helper.step("usage", "u1", **model)
    await helper.send("reserve", id="r2", **model)
    assert (await helper.client.until("suspend"))["id"] is None
    await loop_of(reader, execution_status="paused")


async def test_a_program_may_take_messages_while_it_works(
    talk: ConversationRef, join: Join, dial: Dial
) -> None:
    await astore.call(run_options.change, talk, {"while_working": "steer"})
    reader, helper = await follow(join, talk), await attach(dial)
    await say(reader, "Good morning")
    await helper.take()
    assert (await helper.step("look", "l1"))["inputs"] == []
    await say(reader, "Or rather good evening")
    await reader.until("event", text="Or rather good evening")
    assert [each["text"] for each in (await helper.step("look", "l2"))["inputs"]] == [
        "Or rather good evening"
    ]
    await helper.step("done", "z")
    await reader.until("event", kind="turn")
    await loop_of(reader, execution_status="finished")


# A program that is slow or fast


async def test_a_program_that_reads_nothing_is_read_no_further() -> None:
    program = Program(ProgramPlace(1, "helper"))
    for _ in range(UNSENT_MAX):
        program.send(type="heartbeat")
    waiting = asyncio.ensure_future(program.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await program.next_frame()
    await waiting


async def test_steps_of_a_turn_wait_for_room_and_are_refused_once_it_is_over() -> None:
    program = Program(ProgramPlace(1, "helper"))
    assignment = program.begin("turn", 1)
    for _ in range(WAITING_MAX):
        await program.take(Done(id="z", turn="turn", epoch=1))
    late = asyncio.ensure_future(program.take(Done(id="z", turn="turn", epoch=1)))
    await asyncio.sleep(0)
    assert not late.done()
    program.end(assignment)
    with pytest.raises(Fenced):
        await late


async def test_frames_that_come_too_fast_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(agent_socket, "FRAMES_AT_ONCE", 2)
    pace = agent_socket.FramePace()
    monkeypatch.setattr(asyncio, "sleep", note)
    for _ in range(4):
        await pace.keep()
    assert len(waited) == 2
