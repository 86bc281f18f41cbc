"""Conversations that a model answers, on either wire: the model's server is on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.base import AgentFailure
from sessions_app.agents.chosen import path_of
from sessions_app.agents.llm import agent as llm_agent
from sessions_app.agents.llm import prompts
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.loops.inputs import titles
from sessions_app.loops.manager import get_manager
from sessions_app.settings import agent_setups, user_settings
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.user_settings import SettingSecret
from sessions_app.storage import attachments
from sessions_app.storage.attachments import NewFile
from tests.conftest import Join
from tests.support.people.clients import Client
from tests.support.people.model_talks import (
    KEY,
    answers_of,
    error_of,
    events,
    model,
    notices_of,
    said,
    text_of,
    told,
    until_paused,
    until_shown,
)
from tests.support.people.scripted_agent import manager
from tests.support.people.web_browser import Browser, words
from tests.support.servers.model_server import Answer, Asked, completion, cut_completion, model_server

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

TITLE = "Answer with the title alone"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let failed requests be repeated at once."""
    monkeypatch.setattr(llm_agent, "WAITS_S", (0.0, 0.0))


async def test_an_answer_of_many_chunks_is_shown_as_it_comes_and_stored_as_one_message(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    pieces = [f"word{number} " for number in range(200)]
    async with model(alice, completion(pieces)) as asked:
        client = await join(talk)
        frames = await said(client, "Count.")
    whole = "".join(pieces)
    assert answers_of(frames) == [whole]
    shown = [frame["text"] for frame in frames if frame["type"] in ("delta", "answer")]
    assert len(shown) > 20
    assert whole.startswith(shown[0])
    [request] = asked
    assert (request.path, request.key) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (request.body["model"], request.body["stream"]) == ("gpt-x", True)


async def test_the_next_request_holds_what_was_said_before(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, completion(["Paris."]), completion(["Two million."])) as asked:
        client = await join(talk)
        await said(client, "What is the capital of France?")
        await said(client, "How many people live there?")
    assert told(asked[1]) == [
        ("user", "What is the capital of France?"),
        ("assistant", "Paris."),
        ("user", "How many people live there?"),
    ]


async def test_reasoning_is_stored_beside_the_answer(talk: ConversationRef, alice: User, join: Join) -> None:
    async with model(alice, completion(["Paris."], reasoning=["The capital ", "of France."])):
        frames = await said(await join(talk), "What is the capital of France?")
    [answer] = events(frames, "message", "agent")
    payload = answer["event"]
    holder = payload["llm_message"] if talk.version == Version.V1 else payload
    assert (answer["text"], holder["reasoning_content"]) == ("Paris.", "The capital of France.")


async def test_what_was_used_is_added_to_the_conversations_totals(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, completion(["One."], usage=(100, 10)), completion(["Two."], usage=(120, 11))):
        client = await join(talk)
        await said(client, "1?")
        await said(client, "2?")
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    assert (row.prompt_tokens, row.completion_tokens, row.accumulated_cost) == (220, 21, 0.0)


FAILURES = {
    "rejected the key (401)": Answer(401, {"error": {"message": f"bad key {KEY}"}}),
    "isn't allowed to use the model (403)": Answer(403, {"error": {"message": "no"}}),
    "no model `gpt-x` (404)": Answer(404, {"error": {"message": "no such model"}}),
    "It says: temperature ***": Answer(400, {"error": {"message": f"temperature {KEY}"}}),
    "rate limit was reached (429)": Answer(429, {"error": {"message": "slow down"}}),
    "The model's server failed (500)": Answer(500, {"error": {"message": KEY}}),
    "redirects to another address": Answer(307, headers={"location": "http://127.0.0.1:1/v1"}),
    "sent no answer that can be read": Answer(200, "<!doctype html>"),
    "The model gave an empty answer": completion([]),
    "broke before its answer was complete": cut_completion([]),
}


async def test_a_failure_is_told_in_words_without_the_key(
    subtests: pytest.Subtests, talk: ConversationRef, alice: User, join: Join
) -> None:
    version = Version(talk.version)
    for wrong, answer in FAILURES.items():
        with subtests.test(wrong):
            own = await astore.call(creation.create, alice, version=version, title="A talk")
            async with model(alice, answer):
                client = await join(own)
                await said(client, "hello")
                assert wrong in await error_of(client)
            frames = client.frames
            assert KEY not in json.dumps(frames)
            assert "Traceback" not in json.dumps(frames)


async def test_a_message_that_is_sent_again_after_a_failure_is_told_to_the_model_once(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, Answer(401, {}), completion(["Hello!"])) as asked:
        client = await join(talk)
        await said(client, "Good morning")
        frames = await said(client, "Good morning")
    assert answers_of(frames) == ["Hello!"]
    assert told(asked[1]) == [("user", "Good morning")]


async def test_a_failure_has_the_code_that_clients_of_the_wire_have_words_for(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, Answer(401, {})):
        client = await join(talk)
        await said(client, "hello")
        await error_of(client)
    [told] = events(client.frames, "error")
    code = told["event"].get("code") or told["event"]["extras"]["error_id"]
    assert code in ("LLMAuthenticationError", "STATUS$ERROR_LLM_AUTHENTICATION")


@pytest.mark.parametrize(
    "failure", [Answer(408, {}), Answer(500, {}), Answer(503, {}), cut_completion([])], ids=str
)
@pytest.mark.sampled(3)
async def test_a_passing_failure_is_not_seen(
    talk: ConversationRef, alice: User, join: Join, failure: Answer
) -> None:
    async with model(alice, failure, completion(["Hello."])) as asked:
        frames = await said(await join(talk), "hello")
    assert (answers_of(frames), len(asked)) == (["Hello."], 2)


async def test_an_answer_that_broke_off_is_kept_and_continued(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, cut_completion(["Once ", "upon "]), completion(["a time."])) as asked:
        frames = await said(await join(talk), "Tell me a story.")
    assert answers_of(frames) == ["Once upon ", "a time."]
    assert told(asked[1]) == [
        ("user", "Tell me a story."),
        ("assistant", "Once upon "),
        ("user", prompts.CONTINUE),
    ]


@asynccontextmanager
async def half_answered(
    talk: ConversationRef, alice: User, join: Join, *later: Answer
) -> AsyncIterator[tuple[Client, list[Asked]]]:
    """Have a model say the beginning of its first answer, and nothing more; later answers are whole."""
    async with model(alice, completion(["Once upon ", threading.Event()]), *later) as asked:
        client = await join(talk)
        await client.send({"type": "message", "text": "Tell me a story."})
        await until_shown(client, "upon ")
        yield client, asked


async def test_a_reader_who_comes_while_the_model_is_silent_is_shown_all_that_it_has_said(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    pieces = [f"word{number} " for number in range(20)]
    async with model(alice, completion([*pieces, threading.Event()])):
        client = await join(talk)
        await client.send({"type": "message", "text": "Count."})
        await until_shown(client, pieces[-1])
        late = await join(talk)
        while (await late.until("answer"))["text"] != "".join(pieces):
            pass
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")


async def test_a_stop_ends_a_request_and_keeps_what_was_shown(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with half_answered(talk, alice, join) as (client, _):
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["Once upon "]


async def test_a_request_that_hangs_is_ended_by_a_stop(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    never, asking = threading.Event(), threading.Event()

    def hang(asked: Asked) -> Answer:
        asking.set()
        return Answer(stream=[never])

    async with model(alice, hang):
        client = await join(talk)
        await client.send({"type": "message", "text": "hello"})
        assert await asyncio.to_thread(asking.wait, 60)
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == []


async def test_a_pause_takes_effect_while_the_model_answers_and_the_rest_comes_later(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with half_answered(talk, alice, join, completion(["a time."])) as (client, asked):
        await client.send({"type": "pause"})
        await until_paused(client)
        await client.send({"type": "run"})
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["Once upon ", "a time."]
    assert told(asked[1])[1:] == [("assistant", "Once upon "), ("user", prompts.CONTINUE)]


async def test_a_pause_takes_effect_before_the_models_first_word(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    never, asking = threading.Event(), threading.Event()

    def hang(asked: Asked) -> Answer:
        asking.set()
        return Answer(stream=[never])

    async with model(alice, hang, completion(["Hello."])):
        client = await join(talk)
        await client.send({"type": "message", "text": "hello"})
        assert await asyncio.to_thread(asking.wait, 60)
        await client.send({"type": "pause"})
        await until_paused(client)
        await client.send({"type": "run"})
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["Hello."]


async def test_an_interruption_ends_a_request_and_the_loop_stays(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with half_answered(talk, alice, join) as (client, _):
        loop = get_manager().get_agent_session(talk.public_id)
        assert loop is not None
        await loop.interrupt()
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["Once upon "]
    assert get_manager().get_agent_session(talk.public_id) is loop


async def test_a_server_that_asks_to_wait_for_long_is_not_asked_again(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    refusal = Answer(429, {"error": {"message": "slow down"}}, headers={"retry-after": "3600"})
    async with model(alice, refusal) as asked:
        client = await join(talk)
        await said(client, "hello")
        assert "rate limit was reached" in await error_of(client)
    assert len(asked) == 1


async def test_without_a_model_the_demo_agent_answers_and_says_where_to_enter_one(
    talk: ConversationRef, join: Join
) -> None:
    [answer] = answers_of(await said(await join(talk), "hello"))
    assert answer.startswith("You said: hello")
    assert "Enter a model in Settings" in answer


async def test_a_model_that_is_entered_answers_the_next_message(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    client = await join(talk)
    await said(client, "hello")
    async with model(alice, completion(["Good evening."])):
        assert answers_of(await said(client, "hello again")) == ["Good evening."]


async def test_the_servers_model_answers_users_who_have_none(
    talk: ConversationRef, alice: User, join: Join, configured: Callable[..., None]
) -> None:
    with model_server(lambda asked: completion(["Good morning."])) as (base_url, asked):
        configured(llm_model="openai/gpt-x", llm_base_url=base_url, llm_api_key=KEY)
        assert answers_of(await said(await join(talk), "hello")) == ["Good morning."]
    assert asked[0].key == f"Bearer {KEY}"


async def test_a_key_of_the_servers_environment_is_not_sent_to_a_users_address(
    talk: ConversationRef, alice: User, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-operator")
    with model_server(lambda asked: completion(["Hi."])) as (base_url, asked):
        values = {"llm_model": "openai/gpt-x", "llm_base_url": base_url}
        await astore.call(user_settings.change_settings, alice.pk, values, secrets={})
        await said(await join(talk), "hello")
    assert [each.key for each in asked] == [""]


async def test_with_accounts_a_model_inside_is_not_asked(
    talk: ConversationRef, alice: User, accounts: None
) -> None:
    async with model(alice, completion(["Hi."])) as asked:
        with pytest.raises(AgentFailure, match="public address"):
            await llm_agent.LlmAgent(talk).complete([{"role": "user", "content": "hello"}])
    assert asked == []


async def test_with_accounts_a_model_whose_name_leads_inside_is_not_asked(
    talk: ConversationRef, alice: User, accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with model(alice, completion(["Hi."])) as asked:
        port = int(await base_port(alice))
        place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: [place])
        values = {"llm_base_url": f"http://models.example.org:{port}/v1"}
        secrets = {SettingSecret.LLM_API_KEY: KEY}
        await astore.call(user_settings.change_settings, alice.pk, values, secrets=secrets)
        with pytest.raises(AgentFailure, match="public address"):
            await llm_agent.LlmAgent(talk).complete([{"role": "user", "content": "hello"}])
    assert asked == []


async def base_port(user: User) -> str:
    """Return the port of the user's model."""
    stored = await astore.call(user_settings.settings_of, user.pk)
    assert stored is not None
    return str(stored.llm_base_url).rpartition(":")[2].removesuffix("/v1")


async def test_a_title_and_a_question_are_answered_by_the_model(
    alice: User, join: Join, talk: ConversationRef
) -> None:
    async with model(alice, completion(["Capitals"])) as asked:
        agent = llm_agent.LlmAgent(talk)
        title = await titles.made_of("What is the capital of France?", agent.complete, 50)
    assert title == "Capitals"
    assert TITLE in json.dumps(asked[0].body)


async def test_files_and_images_of_the_user_are_shown_to_the_model(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    image = b"\x89PNG\r\n\x1a\n"
    files = [NewFile(name="notes.txt", content=b"buy milk"), NewFile(name="a.png", content=image)]
    await astore.call(attachments.attach, talk, files)
    async with model(alice, completion(["I see."])) as asked:
        await said(await join(talk), "Look.")
    content = asked[0].body["messages"][-1]["content"]
    assert "buy milk" in text_of(content)
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    assert urls == [f"data:image/png;base64,{base64.b64encode(image).decode()}"]


def never_summing_up(asked: Asked) -> Answer:
    """Answer everything but the request for a summary."""
    is_summary = prompts.SUMMARIZE[:40] in json.dumps(asked.body)
    return Answer(500, {}) if is_summary else completion(["Yes."])


async def test_a_long_conversation_that_cannot_be_condensed_is_cut_and_the_user_is_told_once(
    talk: ConversationRef, alice: User, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_agent, "HISTORY_MAX_CHARS", 1_000)
    async with model(alice, never_summing_up) as asked:
        client = await join(talk)
        await said(client, "x" * 900)
        frames = await said(client, "Is this the end?" + "y" * 200)
    assert (notices_of(frames), answers_of(frames)) == ([prompts.CUT_NOTICE], ["Yes."])
    assert [role for role, _ in told(asked[-1])][-1] == "user"
    assert "xxx" not in json.dumps(asked[-1].body)


async def test_a_model_that_refuses_a_long_request_gets_a_shorter_one(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    error = {"message": "This model's maximum context length is 8 tokens", "code": "context_length_exceeded"}
    refusal = Answer(400, {"error": {**error, "type": "invalid_request_error"}})
    summary = completion(["They met."])
    async with model(alice, completion(["Hm."]), refusal, refusal, summary, completion(["Yes."])) as asked:
        client = await join(talk)
        await said(client, "x" * 30_000)
        frames = await said(client, "Is this the end?")
    assert answers_of(frames) == ["Yes."]
    assert len(json.dumps(asked[4].body)) < 10_000 < len(json.dumps(asked[1].body))
    assert told(asked[4])[0][1].startswith("A summary of the earlier conversation:\n\nThey met.")


async def test_a_model_that_a_v1_start_brings_answers_its_conversation(
    alice: User, join: Join, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    with model_server(lambda asked: completion(["Hi."])) as (base_url, asked):
        llm = {"model": "openai/gpt-x", "base_url": base_url, "api_key": KEY}
        skill = {"name": "greet", "content": "Say hi.", "trigger": {"type": "keyword", "keywords": ["hello"]}}
        context = {
            "system_message_suffix": "Be brief.",
            "user_message_suffix": "No emojis.",
            "skills": [skill, {"name": "rules", "content": "Be kind.", "trigger": None}],
        }
        setup = NewSetup(agent={"kind": "Agent", "llm": llm, "agent_context": context})
        talk = await astore.call(agent_setups.create, alice, setup, conversation_id="talk", title="A talk")
        assert answers_of(await said(await join(talk), "hello")) == ["Hi."]
    assert asked[0].key == f"Bearer {KEY}"
    prompt = asked[0].body["messages"][0]["content"]
    assert all(told in prompt for told in ("Be brief.", "No emojis.", "Say hi.", "Be kind."))


async def test_a_recorded_model_is_not_asked_and_the_user_learns_once_which_one_answers(
    alice: User, join: Join, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    talk = await astore.call(
        partial(agent_setups.create, alice, NewSetup(), title="A talk", llm_model="claude-sonnet-4-20250514")
    )
    async with model(alice, completion(["Paris."]), completion(["Two million."])) as asked:
        client = await join(talk)
        first = await said(client, "What is the capital of France?")
        again = await said(client, "How many people live there?")
    [notice] = notices_of([*first, *again])
    assert "recorded with another model: `claude-sonnet-4-20250514`" in notice
    assert "`openai/gpt-x` answers it now" in notice
    assert (answers_of(first), answers_of(again)) == (["Paris."], ["Two million."])
    assert [each.body["model"] for each in asked] == ["gpt-x", "gpt-x"]
    assert told(asked[1]) == [
        ("user", "What is the capital of France?"),
        ("assistant", "Paris."),
        ("user", "How many people live there?"),
    ]


async def test_the_demo_agents_messages_are_offered_until_there_is_a_model(
    visitor: Browser, alice: User
) -> None:
    hint = "Try the built-in demo agent."
    assert hint in words(await visitor.get("/"))
    async with model(alice, completion(["Hi."])):
        assert hint not in words(await visitor.get("/"))


async def test_the_loops_agent_is_the_one_that_answers_by_itself(talk: ConversationRef, join: Join) -> None:
    await said(await join(talk), "hello")
    loop = get_manager().get_agent_session(talk.public_id)
    assert loop is not None
    assert path_of(loop.agent) == BUILT_IN_AGENTS["auto"]
