"""The options of one conversation's agent, at the native door."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.settings import agent_setups, run_options
from tests.conftest import once

OPTIONS = "/api/native/conversations/talk/options"
_EMPTY = {"agent", "model", "reasoning_effort", "while_working", "unknown_outcome", "instructions"}
DEFAULTS = {name: "" if name in _EMPTY else None for name in run_options.NAMES}


@once
async def test_a_conversation_begins_with_the_defaults(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get(OPTIONS)
    assert (answer.status_code, answer.json()) == (200, DEFAULTS)


@once
async def test_a_change_names_what_it_changes_and_leaves_the_rest(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    changed = {"while_working": "reject", "max_cost": 2.5, "reasoning_effort": "low", "temperature": 0.5}
    assert (await rest.patch(OPTIONS, json=changed)).json() == DEFAULTS | changed
    assert (await rest.patch(OPTIONS, json={"max_cost": None})).json() == DEFAULTS | changed | {
        "max_cost": None
    }
    assert (await rest.get(OPTIONS)).json() == DEFAULTS | changed | {"max_cost": None}


NO_OPTIONS: list[Any] = [
    {},
    [],
    {"unknown": 1},
    {"max_tokens": 0},
    {"max_tokens": -1},
    {"max_tokens": 2**70},
    {"max_cost": -0.1},
    {"max_cost": "NaN"},
    {"max_cost": 1e400},
    {"temperature": 2.1},
    {"temperature": "NaN"},
    {"reasoning_effort": "huge"},
    {"provider": "Workshop"},
    {"while_working": "listen"},
    {"unknown_outcome": 3},
    {"agent": 5},
    {"agent": "a" * 201},
    {"instructions": "a" * 20_001},
]


@once
async def test_what_is_no_option_changes_nothing(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body in NO_OPTIONS:
        with subtests.test(body=body):
            text = (
                httpx.Response(200, json=body).content
                if body != {"max_cost": 1e400}
                else b'{"max_cost": 1e400}'
            )
            answer = await rest.patch(OPTIONS, content=text, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
            assert (await rest.get(OPTIONS)).json() == DEFAULTS


@once
async def test_a_fork_runs_as_its_origin(
    conversation: ConversationRef, alice: Any, rest: httpx.AsyncClient
) -> None:
    await rest.patch(OPTIONS, json={"model": "openai/gpt-5"})
    copy = await astore.call(lambda: agent_setups.fork(alice, conversation))
    assert await astore.call(lambda: run_options.options_of(copy).model) == "openai/gpt-5"
