"""What a Socket.IO client must not send costs its own connection at the most, and no line of a traceback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from sessions_app.models import Connection
from tests.support.people.clients import WAIT_S, Server
from tests.support.people.scripted_agent import until
from tests.support.wires.socketio_clients import PythonClient

pytestmark = pytest.mark.one_engine

JUNK = "x" * 100_000
QUERY = "EIO=4&transport=websocket&conversation_id=talk&session_api_key=null"

ENDED: list[str] = [
    *("", "0", "7", "9", "b!", "bQUJD", JUNK, "٣", "2[1]", "1"),
    *("4", "4x", "47", "49", "4null", "4true", '4{"a":1}', "4" + "[" * 50_000, "4" + JUNK),
]
"""No packets of the transport, and the one that ends it."""
PASSED_OVER: list[str | bytes] = [
    *("2", "3", "5", "6", "2probe", "41", "43", "439[]", "431{}", "40/nowhere,", '42/nowhere,["x"]'),
    *(b"", b"\x00abc", "46", '451-["x"]', '461-["x"]', '4599999999999-["x"]', "44", '44{"message":"x"}'),
    *("42", "42{}", "42[]", "42null", "42[{}]", "42[1]", "42[", "42" + JUNK, "42" + "[" * 50_000),
    *('42["connect",{}]', '42["disconnect"]', '42["refused","x"]', '42["oh_user_action",NaN]', "40[", "41x"),
    *("42" + "1" * 200 + '["x"]', '42²["x"]', f'421["oh_user_action",{"9" * 5000}]'),
]
"""Packets with nothing to take in them: they are refused in words, if at all."""


@pytest.fixture
async def bystander(server: Server, alice: User, live: None) -> AsyncIterator[PythonClient]:
    """Somebody else who is connected to a server that runs, and to the same conversation."""
    server.start()
    client = PythonClient(server)
    await client.connect("talk")
    yield client
    await client.leave()


async def is_ended_by(server: Server, *packets: str | bytes) -> bool:
    """Send packets on a connection of their own; say whether that is over then."""
    address = f"{server.ws_url}/socket.io/?{QUERY}"
    async with connect(address, proxy=None, max_size=None, open_timeout=WAIT_S) as socket:
        with suppress(ConnectionClosed):
            sent = (*packets, "40")
            for packet in sent:
                await socket.send(packet)
            answers = 0
            while answers < sent.count("40"):
                # Whatever was before: who connects is in, or told that this was done already.
                answers += str(await socket.recv()).startswith(('40{"sid"', '44"Unable'))
            return False
        return True


async def is_untouched(bystander: PythonClient) -> bool:
    answer = await bystander.ask({"action": "run", "args": {"command": "ls"}})
    return bool(answer["success"] and not bystander.ends)


def assert_quiet(server: Server) -> None:
    log = server.log.read_text()
    assert ("Traceback" in log, " ERROR " in log) == (False, False), log


@pytest.mark.parametrize("first", [(), ("40",)], ids=["before it joins", "joined"])
async def test_a_packet_that_is_none_ends_the_connection_that_sent_it_and_no_other(
    server: Server, bystander: PythonClient, first: tuple[str, ...]
) -> None:
    assert [packet[:20] for packet in ENDED if not await is_ended_by(server, *first, packet)] == []
    await until(lambda: Connection.objects.filter(door="v0").count() == 1)
    assert await is_untouched(bystander)
    assert_quiet(server)


@pytest.mark.parametrize("first", [(), ("40",)], ids=["before it joins", "joined"])
async def test_a_packet_with_nothing_to_take_is_passed_over(
    server: Server, bystander: PythonClient, first: tuple[str, ...]
) -> None:
    # Of a client that has not joined, nothing long is read at all: test_connections.py.
    sent = [packet for packet in PASSED_OVER if first or len(packet) <= UNKNOWN_BODY_MAX_BYTES]
    assert [packet[:20] for packet in sent if await is_ended_by(server, *first, packet)] == []
    await until(lambda: Connection.objects.filter(door="v0").count() == 1)
    assert await is_untouched(bystander)
    assert_quiet(server)


async def test_an_attachment_that_was_announced_is_passed_over_with_its_event(
    server: Server, bystander: PythonClient
) -> None:
    event = '451-7["oh_user_action",{"_placeholder":true,"num":0}]'
    async with connect(f"{server.ws_url}/socket.io/?{QUERY}", proxy=None) as socket:
        for packet in (
            "40",
            event,
            b"\x00\x01",
            '428["oh_user_action",{"action":"run","args":{"command":"ls"}}]',
        ):
            await socket.send(packet)
        acknowledged: dict[str, Any] = {}
        while len(acknowledged) < 2:
            if (packet := str(await socket.recv())).startswith("43"):
                acknowledged[packet[2]] = json.loads(packet[3:])[0]["success"]
    assert acknowledged == {"7": False, "8": True}
    assert_quiet(server)


async def test_a_post_that_holds_no_packets_ends_its_connection_and_no_other(
    server: Server, bystander: PythonClient
) -> None:
    bodies = [
        "",
        "junk",
        "d=",
        "d=40",
        "2",
        "5",
        "6",
        "b!",
        "1\x1e40",
        "4" + "[" * 50_000,
        "3\x1e" * 20 + "3",
    ]
    query: dict[str, Any] = {"EIO": 4, "transport": "polling", "conversation_id": "talk"}
    async with httpx.AsyncClient(base_url=f"{server.url}/socket.io/", timeout=WAIT_S) as polling:
        for body in (*map(str.encode, bodies), b"\xff\xfe", b"4" * 5_000_000):
            opened = (await polling.get("", params=query)).text
            session = {"EIO": 4, "transport": "polling", "sid": json.loads(opened[1:])["sid"]}
            answers = [await polling.post("", params=session, content=each) for each in (body, b"40")]
            assert [answer.status_code for answer in answers] == [400, 400], body[:20]
    assert await is_untouched(bystander)
    assert_quiet(server)
