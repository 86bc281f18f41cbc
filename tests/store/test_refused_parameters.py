"""Models that refuse a part of a request: it is sent again at once without that part, and so from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.llm import agent as llm_agent
from sessions_app.agents.llm import prompts, refusals
from sessions_app.agents.sources import BUILT_IN_AGENTS
from tests.conftest import Join
from tests.store.test_llm_tools import give, program, results_of
from tests.support.people.model_talks import answers_of, error_of, model, notices_of, said, told
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, Asked, calling, completion

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what models have refused, and allow no wait: what is refused is sent again without one."""
    monkeypatch.setattr(llm_agent, "WAITS_S", ())
    refusals._refused.clear()
    yield
    refusals._refused.clear()


def refuses(member: str, refusal: Answer) -> Callable[[Asked], Answer]:
    """Return a model that answers only requests without this member."""
    return lambda asked: refusal if member in asked.body else completion(["Hello."])


async def test_a_refused_parameter_is_left_out_at_once_and_from_then_on(
    alice: User, join: Join, configured: Callable[..., None], subtests: pytest.Subtests
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    listed = [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs"}]
    refusals_of = {
        "OpenAI": Answer(400, {"error": {"message": "Unknown parameter: 'stream_options'."}}),
        "a validator": Answer(422, {"detail": listed}),
        "plain text": Answer(400, "stream_options: no such field"),
    }
    for name, refusal in refusals_of.items():
        with subtests.test(name):
            make = partial(creation.create, alice, conversation_id=name.replace(" ", "-"), title="A talk")
            client = await join(await astore.call(make))
            async with model(alice, refuses("stream_options", refusal)) as asked:
                assert answers_of(await said(client, "hello")) == ["Hello."]
                assert answers_of(await said(client, "again")) == ["Hello."]
            assert ["stream_options" in each.body for each in asked] == [True, False, False]


async def test_a_model_without_tools_answers_and_its_user_learns_it_once(
    v0_talk: ConversationRef, alice: User, join: Join, tmp_path: Path
) -> None:
    await give(alice, program("counting", tmp_path / "runs"))
    refusal = Answer(400, {"error": {"message": "library/gemma3:latest does not support tools"}})
    async with model(alice, refuses("tools", refusal)) as asked:
        client = await join(v0_talk)
        frames = [*await said(client, "hello"), *await said(client, "again")]
    assert (notices_of(frames), answers_of(frames)) == ([prompts.NO_TOOLS_NOTICE], ["Hello.", "Hello."])
    assert ["tools" in each.body for each in asked] == [True, False, False]
    assert told(asked[2]) == [("user", "hello"), ("assistant", "Hello."), ("user", "again")]


async def test_earlier_calls_are_told_as_text_to_a_model_without_tools(
    v0_talk: ConversationRef, alice: User, join: Join, tmp_path: Path
) -> None:
    await give(alice, program("counting", tmp_path / "runs"))
    client = await join(v0_talk)
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["3."])):
        assert results_of(await said(client, "Add.")) == ["3"]
    refusal = Answer(404, {"error": {"message": "No endpoints found that support tool use."}})
    async with model(alice, refuses("tools", refusal), name="openai/other") as asked:
        assert answers_of(await said(client, "again"))[-1] == "Hello."
    messages = asked[1].body["messages"]
    assert not [each for each in messages if each["role"] == "tool" or "tool_calls" in each]
    assert "The assistant called the tool `add`" in str(messages)


async def test_what_is_refused_again_without_it_is_told(
    v0_talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, Answer(400, {"detail": "stream_options, whatever comes"})) as asked:
        client = await join(v0_talk)
        await said(client, "hello")
        assert (await error_of(client)).endswith("It says: stream_options, whatever comes")
    assert len(asked) == 2


async def test_after_a_while_a_model_is_offered_what_it_has_refused(
    v0_talk: ConversationRef, alice: User, join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(refusals, "monotonic", lambda: now)
    await give(alice, program("counting", tmp_path / "runs"))
    refusal = Answer(400, {"error": {"message": "m does not support tools"}})
    has_tools = True

    def answer(asked: Asked) -> Answer:
        return refusal if has_tools and "tools" in asked.body else completion(["Hello."])

    async with model(alice, *[answer] * 5) as asked:
        client = await join(v0_talk)
        await said(client, "One.")
        await said(client, "Two.")
        now += refusals.REMEMBERED_S
        has_tools = False  # the server was started anew, with tools
        await said(client, "Three.")
    assert ["tools" in each.body for each in asked] == [True, False, False, True]
