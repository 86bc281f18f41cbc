"""The packets of Socket.IO clients, checked before the library reads them.

The library raises on malformed packets in ways that leave the connection behind, and accepts a client's
packets with the names of its own events. Neither passes here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from socketio.packet import ACK, CONNECT, DISCONNECT, EVENT, Packet

from conversations.exceptions import InvalidEvent
from conversations.payloads import bounds
from conversations.payloads.jsontext import InvalidJson

logger = logging.getLogger(__name__)

# As the handshake of this wire announces it (spec V0 §2.1).
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024

TAKEN = ("oh_user_action", "oh_action")
"""The events that clients may send; `oh_action` is the older name."""
REFUSED = "refused"
"""The event that replaces any other; it carries the reason."""

UNREADABLE = "The request can't be read: it is not JSON, too large or nested too deeply."
NOT_TAKEN = f"An event is [name, object], and the name is one of {', '.join(TAKEN)}."

NORMAL, PROTOCOL_ERROR, TOO_BIG = 1000, 1002, 1009

CLOSE = "1"
"""The packet by which a client ends its transport."""
# Packets of the transport: ping, pong, upgrade and noop, with a word at most; and messages, each of which
# begins with the type of a Socket.IO packet. A post with a ping or upgrade makes the library wait
# endlessly.
_BY_WEBSOCKET = re.compile(r"[2356]\w{0,9}|4[0-6].*", re.ASCII | re.DOTALL)
_BY_POST = re.compile(r"3|4[0-6].*", re.ASCII | re.DOTALL)

Receive = Callable[[], Awaitable[Any]]


class Malformed(Exception):
    """What was posted holds something that is no packet, or too much."""


class Unread:
    """The JSON of a large packet, to be parsed off the event loop by its taker."""

    def __init__(self, text: str) -> None:
        self.text = text


def event_of(text: str) -> Any:
    """Return the object of the event [name, object] that a packet's JSON is. Raise InvalidEvent."""
    try:
        bounds.require_bounded(text)
        data = Packet.json.loads(text)
    except InvalidJson as error:
        raise InvalidEvent(f"The request can't be read: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(UNREADABLE) from error
    if not _is_taken(data):
        raise InvalidEvent(NOT_TAKEN)
    return data[1] if len(data) > 1 else None


class _LightJson:
    """The library's JSON, except that large texts stay unparsed."""

    dumps = staticmethod(Packet.json.dumps)

    @staticmethod
    def loads(text: str) -> Any:
        return Packet.json.loads(text) if bounds.is_light(text) else Unread(text)


class V0Packet(Packet):  # type: ignore[misc]
    """A Socket.IO packet; a refused one reads as an event with the reason."""

    json = _LightJson
    data: Any

    def decode(self, encoded_packet: str) -> int:
        """Read a packet of the form of one; return the number of attachments that follow: none."""
        try:
            super().decode(encoded_packet)
        except (ValueError, RecursionError):
            self._refuse(UNREADABLE)
            return 0
        data: object = self.data
        if isinstance(data, Unread):
            # Only events are read, and which event it is, is not known yet.
            self.data = [TAKEN[0], data] if self.packet_type == EVENT else None
        match self.packet_type:
            case packet_type if packet_type == EVENT:
                if not _is_taken(self.data):
                    self._refuse(NOT_TAKEN)
            case packet_type if packet_type not in (CONNECT, DISCONNECT, ACK):
                self._refuse("Binary events are not taken.")
        return 0

    def _refuse(self, reason: str) -> None:
        # The id stays, so that the acknowledgement carries the reason.
        self.packet_type, self.data = EVENT, [REFUSED, reason]


def _is_taken(data: Any) -> bool:
    return isinstance(data, list) and bool(data) and data[0] in TAKEN


def by_websocket(receive: Receive, send: Callable[[Any], Awaitable[None]]) -> Receive:
    """Return a `receive` that brings only packets, and ends the connection at anything else."""

    async def receive_packet() -> Any:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            text = message.get("text")
            if text is None:
                continue  # an attachment of an event that was refused
            if (code := _end_code(text)) is None:
                return message
            if code != NORMAL:
                logger.info("A Socket.IO client sent an invalid packet. Its connection is closed.")
            await send({"type": "websocket.close", "code": code})
            return {"type": "websocket.disconnect", "code": code}

    return receive_packet


def _end_code(text: str) -> int | None:
    """Return the code to close with at this text; None for a packet to be read."""
    if text == CLOSE:  # the library would go on reading for a client that it has forgotten
        return NORMAL
    if len(text) > MAX_PAYLOAD_BYTES:
        return TOO_BIG
    return None if _BY_WEBSOCKET.fullmatch(text) else PROTOCOL_ERROR


async def by_post(receive: Receive) -> Receive:
    """Read the body; return a `receive` that brings it again. Raise Malformed unless it holds packets."""
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > MAX_PAYLOAD_BYTES:
            raise Malformed("too large")
        if not message.get("more_body", False):
            break
    _require_packets(bytes(body))
    waiting = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def receive_again() -> Any:
        return waiting.pop() if waiting else await receive()

    return receive_again


def _require_packets(body: bytes) -> None:
    try:
        *packets, last = body.decode().split("\x1e")
    except UnicodeDecodeError as error:
        raise Malformed("no text") from error
    if last != CLOSE:  # anything after it would be about a forgotten client
        packets.append(last)
    # The engine refuses more than 16 as well, but leaves the connection behind.
    if len(packets) > 16 or not all(map(_BY_POST.fullmatch, packets)):
        raise Malformed("no packets")
