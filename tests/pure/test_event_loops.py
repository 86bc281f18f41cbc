"""Coroutines that are run until they wait."""

from __future__ import annotations

import asyncio

import pytest

from sessions_app.event_loops import begun


async def test_what_does_not_wait_is_done_at_once() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("all")

    assert begun(work()) is None
    assert done == ["all"]


async def test_what_waits_goes_on_when_it_is_awaited() -> None:
    done: list[str] = []
    is_free = asyncio.Event()

    async def work() -> None:
        done.append("first")
        await is_free.wait()
        await asyncio.sleep(0)
        done.append("last")

    rest = begun(work())
    assert rest is not None
    assert done == ["first"]
    is_free.set()
    await rest
    assert done == ["first", "last"]


@pytest.mark.parametrize("waits", [True, False])
async def test_what_fails_raises(waits: bool) -> None:
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise OSError("gone")

    async def both() -> None:
        if rest := begun(work()):
            await rest

    with pytest.raises(OSError, match="gone"):
        await both()


async def test_a_timeout_reaches_what_waits() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    rest = begun(work())
    assert rest is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await rest
    assert ended == ["cleaned up"]
