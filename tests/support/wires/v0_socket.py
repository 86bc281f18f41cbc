"""A Socket.IO client of the V0 wire, packet by packet, straight into the ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from channels.testing import WebsocketCommunicator

from tests.support.people.clients import WAIT_S


class Refused(Exception):
    """The server answered the CONNECT packet with CONNECT_ERROR; `data` is what it said."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.data = data


class Disconnected(Exception):
    """The server ended the connection: by a packet, or by closing the transport."""

    def __init__(self, *, by_packet: bool) -> None:
        super().__init__("by a packet" if by_packet else "by closing the transport")
        self.by_packet = by_packet


class V0Client:
    """One connection by websocket, as the web frontend makes it."""

    def __init__(self, application: Any, *, headers: Mapping[str, str] | None = None, **query: Any) -> None:
        whole = {
            "latest_event_id": -1,
            "conversation_id": None,
            "providers_set": "",
            "session_api_key": "null",
            **query,
        }
        given = {name: value for name, value in whole.items() if value is not None}
        self.address = f"/socket.io/?{urlencode({**given, 'EIO': 4, 'transport': 'websocket'}, doseq=True)}"
        raw = [
            (name.encode(), value.encode())
            for name, value in {
                "host": "localhost",
                "upgrade": "websocket",
                "connection": "upgrade",
                **(headers or {}),
            }.items()
        ]
        self._socket = WebsocketCommunicator(application, self.address, headers=raw)
        self.frames: list[dict[str, Any]] = []
        self.opened: dict[str, Any] = {}

    async def open(self) -> None:
        """Open the transport, without joining anything."""
        accepted, _ = await self._socket.connect(timeout=WAIT_S)
        assert accepted
        packet = await self.packet()
        assert packet[0] == "0", packet
        self.opened = json.loads(packet[1:])

    async def connect(self) -> None:
        """Connect to the namespace. Raise Refused."""
        await self.open()
        await self._socket.send_to(text_data="40")
        answer = await self.packet()
        if answer.startswith("44"):
            raise Refused(json.loads(answer[2:]))
        assert answer.startswith("40"), answer

    async def packet(self, *, within_s: float = WAIT_S) -> str:
        """Return the next packet that is no ping. Raise Disconnected."""
        while True:
            message = await self._socket.receive_output(within_s)
            if message["type"] == "websocket.close":
                raise Disconnected(by_packet=False)
            text: str = message["text"]
            if text == "41":
                raise Disconnected(by_packet=True)
            if text != "2":
                return text
            await self._socket.send_to(text_data="3")

    async def send_packet(self, packet: str) -> None:
        await self._socket.send_to(text_data=packet)

    async def receive(self, *, within_s: float = WAIT_S) -> dict[str, Any]:
        """Return the object of the next `oh_event`."""
        packet = await self.packet(within_s=within_s)
        assert packet.startswith("42"), packet
        name, frame = json.loads(packet[2:])
        assert name == "oh_event"
        self.frames.append(frame)
        return dict(frame)

    async def until(self, **members: Any) -> dict[str, Any]:
        """Return the next frame with these members."""
        while True:
            frame = await self.receive()
            if members.items() <= frame.items():
                return frame

    async def event(self) -> dict[str, Any]:
        """Return the next frame that is an event of the log: one with a number."""
        while not isinstance((frame := await self.receive()).get("id"), int):
            pass
        return frame

    async def said(self, source: str = "agent") -> dict[str, Any]:
        """Return the next message of somebody."""
        return await self.until(action="message", source=source)

    async def state(self, agent_state: str) -> dict[str, Any]:
        """Return the next frame that shows this state of the agent."""
        while True:
            frame = await self.until(observation="agent_state_changed")
            if frame["extras"]["agent_state"] == agent_state:
                return frame

    async def receives_nothing(self, *, within_s: float) -> bool:
        """Say whether no packet comes for so long."""
        nothing: bool = await self._socket.receive_nothing(timeout=within_s)
        return nothing

    async def send(self, event: Any, *, name: str = "oh_user_action") -> None:
        """Send an event without asking for an acknowledgement."""
        await self._socket.send_to(text_data=f"42{json.dumps([name, event])}")

    async def say(self, text: str) -> None:
        """Send a message as the web frontend does."""
        args = {"content": text, "image_urls": [], "file_urls": [], "timestamp": "2025-11-20T08:49:31.898Z"}
        await self.send({"action": "message", "args": args})

    async def asked(self, event: Any, *, number: int = 7) -> Any:
        """Send an event and return what it is acknowledged with; frames meanwhile are kept."""
        return await self.asked_text(json.dumps(["oh_user_action", event]), number=number)

    async def asked_text(self, text: str, *, number: int = 7) -> Any:
        """Do the same with the JSON of a name and an event."""
        await self._socket.send_to(text_data=f"42{number}{text}")
        while True:
            packet = await self.packet()
            if packet.startswith(f"43{number}"):
                (answer,) = json.loads(packet[len(f"43{number}") :])
                return answer
            self.frames.append(json.loads(packet[2:])[1])

    async def disconnected(self) -> Disconnected:
        """Return how the server ends the connection, keeping the frames before that."""
        while True:
            try:
                await self.receive()
            except Disconnected as ended:
                return ended

    async def leave(self) -> None:
        with suppress(asyncio.CancelledError, TimeoutError):
            await self._socket.disconnect(timeout=WAIT_S)
