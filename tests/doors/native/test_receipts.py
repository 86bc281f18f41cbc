"""Receipts: which message the agent has seen, on the socket and by REST."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.loops.inputs import receipts
from sessions_app.loops.manager import ConversationManager
from sessions_app.settings import run_options
from tests.conftest import Join
from tests.support.people.scripted_agent import Stage, ask, manager, stage, until_said

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

RECEIPTS = "/api/native/conversations/talk/receipts"


@pytest.fixture
async def steered(
    conversation: ConversationRef, manager: ConversationManager, configured: Callable[..., None]
) -> ConversationRef:
    """A conversation whose agent takes up what is said while it works."""
    configured(agent="tests.support.people.listening_agent.ListeningAgent")
    await astore.change(run_options.change, conversation, {"while_working": "steer"})
    return conversation


async def test_a_reader_gets_a_receipt_after_the_message_that_it_is_about(
    steered: ConversationRef, stage: Stage, join: Join
) -> None:
    client = await join(steered)
    await client.send({"type": "message", "text": "hold"})
    turn = await stage.holding()
    first = await client.until("receipt")
    assert first == {"type": "receipt", "seqs": [0], "seen_seq": 0, "turn": turn.turn_id}
    await client.send({"type": "message", "id": 1, "text": "more"})
    seq = (await client.until("ack", id=1))["seq"]
    stage.go.set()
    second = await client.until("receipt")
    assert second == {"type": "receipt", "seqs": [seq], "seen_seq": seq + 1, "turn": turn.turn_id}
    shown = [frame["seq"] for frame in client.frames if frame["type"] == "event"]
    assert max(shown) >= seq


async def test_receipts_are_read_page_by_page(
    steered: ConversationRef, stage: Stage, rest: httpx.AsyncClient
) -> None:
    await ask(steered, "hold")
    turn = await stage.holding()
    await ask(steered, "more")
    stage.go.set()
    await until_said(steered, "answer to hold", "answer to more")
    whole = (await rest.get(RECEIPTS)).json()["receipts"]
    assert [(each["seq"], each["seen_seq"], each["turn"]) for each in whole] == [
        (0, 0, turn.turn_id),
        (2, 3, turn.turn_id),
    ]
    pages = [(await rest.get(RECEIPTS, params={"after": after, "limit": 1})).json() for after in (-1, 0, 2)]
    assert [page["receipts"] for page in pages] == [whole[:1], whole[1:], []]


async def test_a_message_that_the_agent_has_not_seen_has_no_receipt(
    steered: ConversationRef, stage: Stage, rest: httpx.AsyncClient
) -> None:
    await ask(steered, "hold")
    await stage.holding()
    await ask(steered, "more")
    assert [each["seq"] for each in (await rest.get(RECEIPTS)).json()["receipts"]] == [0]


async def test_what_is_no_place_is_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    wrong: list[dict[str, int | str]] = [{"after": -2}, {"after": "x"}, {"limit": 0}, {"limit": 501}]
    for query in wrong:
        with subtests.test(query=query):
            answer = await rest.get(RECEIPTS, params=query)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_many_messages_that_are_seen_at_once_come_in_several_receipts(
    steered: ConversationRef, stage: Stage, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "ANNOUNCED_MAX", 2)
    client = await join(steered)
    await client.send({"type": "message", "text": "hold"})
    await stage.holding()
    await client.until("receipt")
    await ask(steered, "one", "two", "three")
    stage.go.set()
    found = [await client.until("receipt"), await client.until("receipt")]
    assert [len(frame["seqs"]) for frame in found] == [2, 1]
