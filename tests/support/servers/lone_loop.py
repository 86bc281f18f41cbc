"""One loop in a process of its own.

Run as `python -m tests.support.servers.lone_loop PUBLIC_ID LEASE_S [--renewed]`.

Its agent prints `playing` when a turn begins, and then says every line that it reads. With `--renewed` its
lease is renewed while the process runs, as a manager does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")

import django

django.setup()

from conversations.models import Conversation
from sessions_app import astore
from sessions_app.agents.base import Turn
from sessions_app.loops import leases
from sessions_app.loops.loop import Loop
from sessions_app.processes import this_process


class SayingAgent:
    """Says what it reads, line by line, until the input ends."""

    async def play(self, turn: Turn) -> None:
        print("playing", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await turn.say(line.strip())

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return ""


async def main(public_id: str, lease_s: float, *, is_renewed: bool) -> None:
    """Run the loop until it is over: fenced off, here."""
    row = await Conversation.objects.aget(public_id=public_id)
    loop = Loop(row.ref, SayingAgent(), this_process(), lease_s=lease_s)
    renewing = asyncio.create_task(_renew(loop, lease_s)) if is_renewed else None
    try:
        await loop.run()
    finally:
        if renewing is not None:
            renewing.cancel()
        await astore.close()


async def _renew(loop: Loop, lease_s: float) -> None:
    await loop.started.wait()
    while True:
        held = {loop.conversation.pk: loop.epoch}
        await astore.change(leases.renew, held, this_process(), lease_s=lease_s)
        await asyncio.sleep(lease_s / 3)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), is_renewed="--renewed" in sys.argv[3:]))
