"""An interruption ends what the agent does and keeps its loop; a loop that is gone says why."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.store import creation
from convserver.rendering import render_page
from sessions_app import astore
from sessions_app.loops.loop import Loop
from sessions_app.loops.manager import ConversationManager, close_manager
from sessions_app.loops.playing.played_turn import PlayedTurn
from tests.support.people.scripted_agent import (
    Stage,
    ask,
    ends,
    loop_of,
    manager,
    row_of,
    stage,
    until_no_loop,
    until_said,
    until_status,
    until_true,
)

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

STOPPED = ["stopped: The agent was stopped."]


async def texts_of_ends(conversation: ConversationRef) -> list[str]:
    return [end["text"] for end in await ends(conversation)]


async def test_an_interruption_ends_the_turn_and_the_loop_answers_what_comes_next(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    epoch = (await loop_of(conversation)).epoch
    await manager.interrupt(conversation)
    await until_status(conversation, "idle")
    assert await texts_of_ends(conversation) == STOPPED
    await ask(conversation, "more")
    await until_said(conversation, "step 1", "answer to more")
    loop = await loop_of(conversation)
    assert (loop.status, loop.epoch) == ("running", epoch)


async def test_an_interruption_gives_up_on_what_was_asked_before_it(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "hold", "and this")
    await stage.holding()
    await manager.interrupt(conversation)
    await until_status(conversation, "idle")
    assert not (await row_of(conversation)).is_unanswered


async def test_an_answer_that_is_interrupted_is_kept_and_marked(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "speak")
    await stage.holding()
    await manager.interrupt(conversation)
    await until_status(conversation, "idle")
    await until_said(conversation, "half of ")


async def test_a_turn_that_waits_for_approval_is_ended_by_an_interruption(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await manager.interrupt(conversation)
    await until_status(conversation, "idle")
    assert (await texts_of_ends(conversation), (await loop_of(conversation)).status) == (STOPPED, "running")


async def test_an_interruption_of_an_idle_loop_tells_readers_that_it_stopped(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await manager.interrupt(conversation)
    newest = (await astore.call(reads.read_after, conversation, -1))[-1]
    assert (newest["kind"], newest["text"]) == ("state", STOPPED[0])


async def test_an_agent_that_does_not_hear_the_interruption_finishes_its_turn(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "deaf")
    await stage.holding()
    await manager.interrupt(conversation)
    await until_said(conversation, "What?")
    await ask(conversation, "more")
    await until_said(conversation, "What?", "answer to more")


@pytest.mark.needs_engine
@pytest.mark.no_second_try
async def test_two_interruptions_end_one_turn(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await manager.interrupt(conversation)
    await manager.interrupt(conversation)
    await until_status(conversation, "idle")
    assert await texts_of_ends(conversation) == STOPPED


@pytest.mark.no_second_try
@pytest.mark.parametrize(("text", "answers"), [("hello", ["answer to hello"]), ("fail", [])])
async def test_a_turn_that_is_interrupted_when_its_agent_is_done_ends_once(
    conversation: ConversationRef,
    manager: ConversationManager,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    answers: list[str],
) -> None:
    once_played(monkeypatch, lambda: manager.interrupt(conversation))
    await ask(conversation, text)
    await until_true(lambda: texts_of_ends(conversation))
    await ask(conversation, "more")
    await until_said(conversation, *answers, "answer to more")
    assert await texts_of_ends(conversation) == [*STOPPED, "awaiting_user_input"]


def once_played(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]) -> None:
    """Let this happen when the next agent has played, before its turn is ended."""
    play_to_its_end, left = Loop._play_to_its_end, [happens]

    async def hooked(loop: Loop, turn: PlayedTurn) -> None:
        try:
            await play_to_its_end(loop, turn)
        finally:
            if left:
                await left.pop()()

    monkeypatch.setattr(Loop, "_play_to_its_end", hooked)


async def test_an_interruption_that_comes_as_the_agent_asks_for_approval_ends_the_turn(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "deaf-approve")
    await stage.holding()
    await manager.interrupt(conversation)
    await until_status(conversation, "idle")
    assert await texts_of_ends(conversation) == STOPPED


async def test_an_agent_that_does_not_hear_the_interruption_is_not_asked_what_came_before_it(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "deaf")
    await stage.holding()
    await ask(conversation, "and this")
    await manager.interrupt(conversation)
    await until_said(conversation, "What?")


async def test_a_stop_during_an_interruption_stops_the_loop(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await manager.interrupt(conversation)
    await manager.close_session(conversation.public_id)
    assert (await loop_of(conversation)).status == "stopped"
    assert await texts_of_ends(conversation) == STOPPED


# Why a loop is gone


async def test_a_loop_that_was_stopped_says_so(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    assert (await loop_of(conversation)).ended_by == ""
    await manager.close_session(conversation.public_id)
    assert (await loop_of(conversation)).ended_by == "stopped"


async def test_a_loop_that_made_room_says_so(
    conversation: ConversationRef, alice: User, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(max_concurrent=1)
    other = await astore.call(creation.create, alice, conversation_id="other")
    await manager.maybe_start_agent_loop(conversation)
    await manager.maybe_start_agent_loop(other)
    await until_no_loop(conversation)
    assert (await loop_of(conversation)).ended_by == "crowded_out"


async def test_a_loop_that_was_left_alone_says_so(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    loop = manager.get_agent_session(conversation.public_id)
    assert loop is not None
    loop.leave()
    await until_no_loop(conversation)
    assert (await loop_of(conversation)).ended_by == "idle"


async def test_a_loop_whose_server_ends_says_so(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await close_manager()
    assert (await loop_of(conversation)).ended_by == "interrupted"


async def test_a_loop_that_is_started_again_is_gone_for_no_reason_any_more(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await manager.close_session(conversation.public_id)
    await manager.maybe_start_agent_loop(conversation)
    assert (await loop_of(conversation)).ended_by == ""


@pytest.mark.parametrize("version", list(Version))
async def test_a_call_that_the_users_stop_cuts_off_reads_as_stopped_and_not_as_failed(
    alice: User, stage: Stage, manager: ConversationManager, version: Version
) -> None:
    conversation = await astore.call(creation.create, alice, conversation_id="painting", version=version)
    await ask(conversation, "use")
    await stage.holding()
    await manager.close_session("painting")
    shown = await _outcomes_of_calls(conversation)
    assert shown == ["Stopped"]


async def _outcomes_of_calls(conversation: ConversationRef) -> list[str]:
    events = await astore.call(reads.read_after, conversation, -1)
    html = render_page(events, conversation_id=conversation.public_id).html
    return [re.sub("<[^>]+>", "", each).strip() for each in re.findall(r'<p class="outcome">.*?</p>', html)]
