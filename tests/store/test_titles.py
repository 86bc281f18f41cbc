"""A conversation gets a title by itself: once, from its first message, and never over one that was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from django.contrib.auth.models import User

from conversations import provisional_titles
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version, shown_title
from conversations.store import ConversationStore, changes, creation, forks, importing
from conversations.store.metadata import ConversationMetadata
from sessions_app import astore
from sessions_app.agents.demo import DemoAgent
from sessions_app.loops import recovery
from sessions_app.loops.inputs import titles
from sessions_app.loops.inputs.titles import set_generated_title
from sessions_app.loops.manager import ConversationManager
from tests.conftest import Connect
from tests.support.data.events import event
from tests.support.data.faulty import SilentAgent
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import Stage, ask, manager, stage, until

__all__ = ["manager", "stage"]

pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("live")]

LONG = "a question that nobody can ask in fifty characters or less, try as they may"


class AnsweringAgent(DemoAgent):
    """Answers every question with the same text."""

    def __init__(self, answer: str) -> None:
        self.asked = 0
        self._said = answer

    async def complete(self, messages: object) -> str:
        self.asked += 1
        return self._said


class ThinkingAgent(DemoAgent):
    """Is never done with a title."""

    asked: asyncio.Event

    async def complete(self, messages: object) -> str:
        self.asked.set()
        await asyncio.Future()
        return "Too late"


async def title(conversation: ConversationRef) -> str | None:
    return await astore.call(lambda: Conversation.objects.get(pk=conversation.pk).title)


async def say(conversation: ConversationRef, *texts: str) -> None:
    await astore.call(writes.append, conversation, [event(text) for text in texts])


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("A title", "A title"),
        ("  A\n title ", "A title"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 47 + "..."),
        ("", "hello"),
        (" \n ", "hello"),
    ],
)
async def test_the_agents_answer_is_the_title_cut_where_it_is_long(
    conversation: ConversationRef, answer: str, shown: str
) -> None:
    await say(conversation, " ", "hello", "more")
    await set_generated_title(conversation, AnsweringAgent(answer))
    assert await title(conversation) == shown


@pytest.mark.parametrize(
    "answer",
    ["**Weather in Vienna**", '"Weather in Vienna"', "# Weather in\nVienna", "“`Weather` in Vienna”"],
)
async def test_the_marks_around_an_answer_are_no_part_of_the_title(
    conversation: ConversationRef, answer: str
) -> None:
    await say(conversation, "What is the weather in Vienna?")
    await set_generated_title(conversation, AnsweringAgent(answer))
    assert await title(conversation) == "Weather in Vienna"


@pytest.mark.parametrize(("message", "shown"), [("hello\nworld", "hello world"), (LONG, LONG[:30] + "...")])
async def test_where_the_agent_fails_the_beginning_of_the_message_serves(
    conversation: ConversationRef, message: str, shown: str
) -> None:
    await say(conversation, message)
    await set_generated_title(conversation, SilentAgent())
    assert await title(conversation) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("**Fix** the [bug](http://x.example)", "Fix the bug"),
        ("# Plan\n\n1. `read` it", "Plan read it"),
        ("Use my_long_name &amp; *stars*", "Use my_long_name & stars"),
        ("~~Old~~ ![a chart](http://x.example/y.png)", "Old a chart"),
        ("---", "---"),
    ],
)
async def test_a_title_that_a_message_gives_is_plain_text(
    conversation: ConversationRef, message: str, shown: str
) -> None:
    await say(conversation, message)
    await astore.call(titles.set_provisional_title, conversation)
    assert await title(conversation) == shown


async def test_conversations_that_begin_with_the_same_command_have_titles_that_differ(alice: User) -> None:
    begun = [
        await astore.call(creation.create, alice, conversation_id=each) for each in ("mine", "yours", None)
    ]
    for each in begun:
        await say(each, " /Slow ")
        await set_generated_title(each, AnsweringAgent("/slow"))
    titles = [await title(each) for each in begun]
    assert titles == ["/slow · mine", "/slow · yours", f"/slow · {begun[2].public_id[:5]}"]


@pytest.mark.needs_engine
async def test_a_title_is_made_once(conversation: ConversationRef) -> None:
    await say(conversation, "hello")
    agent = AnsweringAgent("A title")
    await set_generated_title(conversation, agent)
    await astore.call(changes.retitle, conversation, None)
    await set_generated_title(conversation, agent)
    assert (agent.asked, await title(conversation)) == (1, None)


@pytest.mark.needs_engine
async def test_a_title_that_somebody_gave_stays_also_while_one_is_made(conversation: ConversationRef) -> None:
    class Renaming(AnsweringAgent):
        async def complete(self, messages: object) -> str:
            await astore.call(changes.retitle, conversation, "Mine")
            return await super().complete(messages)

    await say(conversation, "hello")
    await set_generated_title(conversation, Renaming("A title"))
    assert await title(conversation) == "Mine"


async def test_a_default_looking_title_that_somebody_gave_is_kept(conversation: ConversationRef) -> None:
    await say(conversation, "hello")
    await astore.call(changes.retitle, conversation, "Conversation talk")
    agent = AnsweringAgent("A title")
    await set_generated_title(conversation, agent)
    assert (agent.asked, await title(conversation)) == (0, "Conversation talk")


async def test_without_a_message_nothing_is_tried(conversation: ConversationRef) -> None:
    agent = AnsweringAgent("A title")
    await set_generated_title(conversation, agent)
    await say(conversation, "hello")
    await set_generated_title(conversation, agent)
    assert (agent.asked, await title(conversation)) == (1, "A title")


@pytest.mark.parametrize("given", [None, "Mine"])
async def test_a_conversation_whose_first_answer_is_stopped_has_a_title(
    manager: ConversationManager, conversation: ConversationRef, stage: Stage, given: str | None
) -> None:
    await astore.call(changes.retitle, conversation, given)
    await ask(conversation, "hold on")
    await stage.holding()
    await manager.close_session("talk")
    assert await title(conversation) in ([given] if given else ["hold on", "HOLD ON"])


async def test_a_conversation_that_is_stopped_while_its_title_is_made_has_one(
    manager: ConversationManager, conversation: ConversationRef, configured: Callable[..., None]
) -> None:
    ThinkingAgent.asked = asyncio.Event()
    configured(agent="tests.store.test_titles.ThinkingAgent")
    await ask(conversation, "hello")
    await asyncio.wait_for(ThinkingAgent.asked.wait(), WAIT_S)
    await manager.close_session("talk")
    assert await title(conversation) == "hello"


async def test_a_conversation_whose_first_answer_is_cut_off_with_its_process_has_a_title(
    manager: ConversationManager, conversation: ConversationRef, stage: Stage
) -> None:
    await ask(conversation, "hold on")
    await stage.holding()
    epoch = await astore.call(lambda: Conversation.objects.get(pk=conversation.pk).loop_epoch)
    await astore.call(recovery.repair, conversation, epoch)
    assert await title(conversation) in ("hold on", "HOLD ON")


async def test_a_conversation_whose_first_turn_fails_has_a_title(
    manager: ConversationManager, conversation: ConversationRef
) -> None:
    await ask(conversation, "fail please")
    await until(lambda: Conversation.objects.filter(pk=conversation.pk, title="FAIL PLEASE").exists())


async def test_a_conversation_has_a_title_while_its_first_turn_hangs(
    manager: ConversationManager, conversation: ConversationRef, stage: Stage
) -> None:
    await ask(conversation, "hold on")
    await stage.holding()
    await until(lambda: Conversation.objects.filter(pk=conversation.pk, title="HOLD ON").exists())
    stage.go.set()


async def test_a_conversation_has_a_title_while_its_title_is_made(
    manager: ConversationManager, conversation: ConversationRef, configured: Callable[..., None]
) -> None:
    ThinkingAgent.asked = asyncio.Event()
    configured(agent="tests.store.test_titles.ThinkingAgent")
    await ask(conversation, "hello")
    await asyncio.wait_for(ThinkingAgent.asked.wait(), WAIT_S)
    assert await title(conversation) == "hello"


async def test_a_conversation_of_which_no_agent_can_be_made_has_a_title(
    manager: ConversationManager, conversation: ConversationRef, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.BrokenAgent")
    await ask(conversation, "hello")
    await until(lambda: Conversation.objects.filter(pk=conversation.pk, title="hello").exists())


async def test_what_is_said_first_to_a_paused_agent_is_the_title(
    manager: ConversationManager, conversation: ConversationRef
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await manager.pause(conversation)
    await ask(conversation, "hello")
    await until(lambda: Conversation.objects.filter(pk=conversation.pk, title="hello").exists())


@pytest.mark.needs_engine
@pytest.mark.parametrize("chosen", ["hello", "Mine", None])
async def test_a_title_that_somebody_chose_while_one_is_made_stays_whatever_it_is(
    conversation: ConversationRef, chosen: str | None
) -> None:
    class Renaming(AnsweringAgent):
        async def complete(self, messages: object) -> str:
            await astore.call(changes.retitle, conversation, chosen)
            return await super().complete(messages)

    await say(conversation, "hello")
    await set_generated_title(conversation, Renaming("A title"))
    assert await title(conversation) == chosen


async def test_metadata_that_names_a_title_chooses_it(
    conversation: ConversationRef, store: ConversationStore
) -> None:
    await say(conversation, "hello")
    await astore.call(titles.set_provisional_title, conversation)
    same = ConversationMetadata(conversation_id="talk", title="hello")
    await astore.call(store.save_metadata, same, fields=["title"])
    await set_generated_title(conversation, AnsweringAgent("A title"))
    assert await title(conversation) == "hello"


async def test_the_title_is_told_to_v0_clients_while_the_first_turn_hangs(
    manager: ConversationManager, conversation: ConversationRef, connect: Connect, stage: Stage
) -> None:
    client = await connect("talk")
    await ask(conversation, "hold on")
    await stage.holding()
    frame = await client.until(conversation_title="HOLD ON")
    assert frame["message"] == "talk"
    stage.go.set()


async def test_a_conversation_has_a_title_soon_after_its_first_answer(
    rest: httpx.AsyncClient, conversation: ConversationRef, configured: Callable[..., None]
) -> None:
    await rest.post("/api/conversations/talk/message", json={"message": "Mend the login page"})
    await until(lambda: Conversation.objects.filter(pk=conversation.pk, title="Mend the login page").exists())
    assert (await rest.get("/api/conversations/talk")).json()["title"] == "Mend the login page"


def imported_with(user: User, conversation_id: str, title: str | None) -> ConversationRef:
    found = importing.import_conversation(
        user, [event()], conversation_id=conversation_id, version=Version.V0, title=title
    )
    assert found.conversation is not None
    return found.conversation


def test_a_title_counts_as_chosen_unless_it_came_from_messages_or_another_program(
    alice: User, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    writes.append(conversation, [event("hello")])
    titles.set_provisional_title(conversation)
    reported = creation.create(alice, conversation_id="reported")
    changes.retitle(reported, "Of a report", title_is=None)
    renamed = imported_with(alice, "renamed", "Of a file")
    changes.retitle(renamed, "Mine")
    made = {
        "provisional": (conversation, True),
        "fork with the same title": (forks.fork(alice, conversation, title="hello"), True),
        "fork with another title": (forks.fork(alice, conversation, title="Mine"), False),
        "fork of a chosen title": (forks.fork(alice, renamed, title="Mine"), False),
        "import": (imported_with(alice, "imported", "Of a file"), True),
        "import without a title": (imported_with(alice, "untitled", None), False),
        "renamed": (renamed, False),
        "report": (reported, True),
        "creation": (creation.create(alice, title="Mine"), False),
    }
    for name, (each, is_made) in made.items():
        with subtests.test(name):
            assert provisional_titles.is_made(each.pk) is is_made


@pytest.mark.parametrize(
    ("conversation_id", "title"),
    [
        ("my-first-agent", "Conversation my-first-agent"),
        ("x" * 40, f"Conversation {'x' * 40}"),
        ("x" * 41, f"Conversation {'x' * 39}…"),
        ("0123456789abcdef0123456789abcdef", "Conversation 01234"),
    ],
)
def test_the_default_title_shows_an_id_that_somebody_chose(conversation_id: str, title: str) -> None:
    assert shown_title(None, conversation_id) == title
