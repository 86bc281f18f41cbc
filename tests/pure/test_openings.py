"""Sockets of one user are opened one after the other, as long as each is opened soon."""

from __future__ import annotations

import asyncio

import pytest

from sessions_app.capacity.openings import opening
from tests.support.people.clients import WAIT_S

USER, ANOTHER = 1, 2

pytestmark = pytest.mark.usefixtures("accounts")


async def test_a_socket_waits_for_the_users_earlier_one_but_not_for_anothers() -> None:
    async with opening(USER, wait_s=WAIT_S):
        async with opening(ANOTHER, wait_s=WAIT_S):
            pass
        waiting = asyncio.create_task(_opened(wait_s=WAIT_S))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_a_socket_that_is_not_opened_soon_is_waited_for_no_longer() -> None:
    async with opening(USER, wait_s=WAIT_S):
        await asyncio.wait_for(_opened(wait_s=0.01), WAIT_S)
        waiting = asyncio.create_task(_opened(wait_s=WAIT_S))
        await asyncio.sleep(0)
        assert not waiting.done()  # it has given back no slot that it had not
    await waiting


async def _opened(*, wait_s: float) -> None:
    async with opening(USER, wait_s=wait_s):
        pass
