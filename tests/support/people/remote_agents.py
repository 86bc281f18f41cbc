"""Programs of remote agents, as tests play them: straight into this process, a frame at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conftest import Dial
from tests.support.people.clients import Client


class Helper:
    """A program that is attached under a name, and the turn that it was handed last."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.turn: dict[str, Any] = {}

    async def take(self) -> dict[str, Any]:
        """Return the next turn that it is handed."""
        self.turn = await self.client.until("turn")
        return self.turn

    async def send(self, kind: str, **members: Any) -> None:
        step = {"type": kind, "turn": self.turn["turn"], "epoch": self.turn["epoch"], **members}
        await self.client.send(step)

    async def step(self, kind: str, frame_id: str, **members: Any) -> dict[str, Any]:
        await self.send(kind, id=frame_id, **members)
        return await self.answer(frame_id)

    async def answer(self, frame_id: str) -> dict[str, Any]:
        while True:
            frame = await self.client.receive()
            if frame["type"] in ("ack", "error") and frame["id"] == frame_id:
                return frame


async def attach(dial: Dial, name: str = "helper", query: Mapping[str, Any] | None = None) -> Helper:
    """Attach a program, and return it once the server has said so."""
    helper = Helper(await dial(f"/ws/agents/{name}", query=query))
    await helper.client.until("hello")
    return helper
