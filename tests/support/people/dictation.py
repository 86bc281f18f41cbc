"""Agents that say nothing, or exactly what a test dictates, piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

import pytest

from sessions_app.agents.base import Turn
from tests.support.people.clients import WAIT_S

Dictate = Callable[..., Awaitable[None]]


class Thought(str):
    """A piece of the reasoning behind an answer."""

    __slots__ = ()


class SilentAgent:
    """Has nothing to say."""

    async def play(self, turn: Turn) -> None:
        pass

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return ""


class DictatedAgent(SilentAgent):
    """Says what the test dictates."""

    pieces: ClassVar[asyncio.Queue[str | None]]
    """What to say next; None ends the answer."""
    said: ClassVar[asyncio.Queue[str]]
    """Each piece, once it is out."""

    async def play(self, turn: Turn) -> None:
        async with turn.answer() as answer:
            while (piece := await self.pieces.get()) is not None:
                if isinstance(piece, Thought):
                    answer.think(piece)
                await answer.write("" if isinstance(piece, Thought) else piece)
                await self.said.put(piece)


@pytest.fixture
def silence(configured: Callable[..., None]) -> None:
    configured(agent="tests.support.people.dictation.SilentAgent")


@pytest.fixture
async def dictate(configured: Callable[..., None]) -> Dictate:
    """Let the agent say pieces of its one answer; returns once they are out."""
    configured(agent="tests.support.people.dictation.DictatedAgent")
    DictatedAgent.pieces, DictatedAgent.said = asyncio.Queue(), asyncio.Queue()

    async def say(*pieces: str) -> None:
        for piece in pieces:
            DictatedAgent.pieces.put_nowait(piece)
            await asyncio.wait_for(DictatedAgent.said.get(), WAIT_S)

    return say


def end_answer() -> None:
    DictatedAgent.pieces.put_nowait(None)
