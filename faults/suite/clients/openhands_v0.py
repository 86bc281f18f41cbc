"""Clients of the V0 wire by Socket.IO: each message is sent once, because the wire has no id for a repeat."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect

from faults.checker.history import Did
from faults.suite.clients.native import NativeClient
from faults.suite.clients.stage import REQUEST_WAIT_S, Client, promise_of, word_in

EVENT, ASK, ACK, PING, PONG = "42", "427", "437", "2", "3"
"""Packets of Socket.IO: an event, one that is answered, its answer, and the transport's own."""
REST_S = (0.05, 0.2)


class SocketIOSender(Client):
    """Says one thing after the other, and reads."""

    async def converse(self, talk: str, name: str) -> None:
        """Join, and say one thing after the other until the socket ends."""
        query = f"conversation_id={talk}&latest_event_id=-1&EIO=4&transport=websocket"
        address = f"{self.stage.url('ws')}/socket.io/?{query}"
        pending: dict[str, int] = {}
        try:
            async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
                await self._packet(socket)  # the transport is open
                await socket.send("40")
                if (await self._packet(socket)).startswith("40"):
                    reader = f"{name}-{uuid4().hex[:6]}"
                    self.stage.add(Did.JOIN, talk, reader, -1)
                    while not self.stage.is_over:
                        await self._say(socket, talk, reader, pending)
        finally:
            for word in pending:
                self.stage.add(Did.UNKNOWN, talk, word)

    async def _say(self, socket: ClientConnection, talk: str, reader: str, pending: dict[str, int]) -> None:
        word = self.stage.new_word()
        pending[word] = self.stage.begin(talk, word)
        event = {"action": "message", "args": {"content": self.stage.text(word), "image_urls": []}}
        await socket.send(f"{ASK}{json.dumps(['oh_user_action', event])}")
        while pending:
            packet = await self._packet(socket)
            if packet.startswith(ACK):
                self._answered(talk, word, json.loads(packet.removeprefix(ACK))[0], pending.pop(word))
            elif packet.startswith(EVENT):
                self._shown(talk, reader, json.loads(packet.removeprefix(EVENT))[1])
        await NativeClient(self.stage).look(talk)
        await self.pause(*REST_S)

    def _answered(self, talk: str, word: str, answer: dict[str, Any], number: int) -> None:
        if answer.get("success"):
            seq = answer.get("id")
            self.stage.acknowledge(talk, word, -1 if seq is None else int(seq), number)
        else:
            text = str(answer.get("error"))
            self.stage.refuse(talk, word, promise_of("unavailable", text), text)

    def _shown(self, talk: str, reader: str, frame: dict[str, Any]) -> None:
        """Log an event of the log; this wire leaves some out, and tells the ids of none."""
        seq = frame.get("id")
        if isinstance(seq, int):
            self.stage.look_through(talk, json.dumps(frame))
            said = word_in(frame.get("args", {}).get("content")) if frame.get("action") == "message" else ""
            self.stage.add(Did.SHOWN, talk, reader, seq, said)

    async def _packet(self, socket: ClientConnection) -> str:
        """Return the next packet that is no ping."""
        async with asyncio.timeout(REQUEST_WAIT_S):
            while (packet := str(await socket.recv())) == PING:
                await socket.send(PONG)
        return packet
