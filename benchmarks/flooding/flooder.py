"""The process of a flood: what to do by stdin, a line when it begins, and how it was answered at SIGTERM.

It goes on whatever it is answered, as somebody would who means no good.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from itertools import islice
from secrets import token_hex
from typing import Any
from uuid import uuid4

import uvloop

from benchmarks.clients import frames
from benchmarks.clients.exchanges import authorization
from benchmarks.flooding.work import FLOODS, Flood, Flooding

REST_S = 0.02
"""How long a client rests after a refusal: without it, the clients would be what is measured."""
BEGUN_S = 0.5
"""How long it floods before it says so."""
READ_BYTES = 256 * 1024
SECRETS_AT_ONCE = 50
NICENESS = 5
"""The clients give way to the server, as those on other machines do."""


class Client:
    """One of the clients; they share how they were answered."""

    def __init__(self, flood: Flood, flooding: Flooding, place: int, answers: Counter[str]) -> None:
        self._flood, self._flooding, self._place = flood, flooding, place
        self._answers = answers
        own = flooding.conversations
        self._conversation = flood.conversation or own[place % len(own)]
        self._kept: list[asyncio.StreamWriter] = []

    async def run(self) -> None:
        """Flood until it is cancelled, and connect anew when it is thrown out."""
        while True:
            try:
                await self._connected()
            except (OSError, asyncio.IncompleteReadError, frames.ClosedEarly) as error:
                told = isinstance(error, frames.ClosedEarly)
                self._answers[str(error)[:4] if told else "broken"] += 1
            await asyncio.sleep(REST_S)

    async def _connected(self) -> None:
        source = f"127.0.1.{self._place + 1}" if self._flood.is_from_many else "127.0.0.1"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._flooding.port, local_addr=(source, 0)
        )
        is_kept = False
        try:
            if self._flood.requests:
                await self._exchange(reader, writer, self._flood.requests(self._flooding, self._conversation))
            elif self._flood.frames:
                await self._upgrade(reader, writer, f"{self._conversation}?follow=false")
                sent = self._flood.frames(self._flooding, self._conversation)
                await _first_of(self._read(reader), self._write(writer, sent))
            elif self._flood.keeps:
                await self._upgrade(reader, writer, f"{uuid4().hex}?after=-1")
                self._kept.append(writer)
                is_kept = len(self._kept) <= self._flood.keeps // self._flood.clients
            else:
                await self._upgrade(reader, writer, f"{self._conversation}?after=-1")
                await self._read(reader, until=b'"replay_complete"')
        finally:
            if not is_kept:
                writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: Iterator[bytes]
    ) -> None:
        for request in requests:
            self._answers["sent"] += 1
            # An answer may come before all was sent: a refusal does.
            sending = asyncio.create_task(_sent(writer, request))
            try:
                status = await _answer(reader)
            finally:
                sending.cancel()
            self._answers[status] += 1
            if status >= "400":
                await asyncio.sleep(REST_S)
            if not sending.done() or not await _is_usable(sending):
                return

    async def _upgrade(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: str) -> None:
        path = f"/ws/conversations/{place}"
        writer.write(frames.upgrade(path, self._flooding.port, self._flooding.token))
        status = (await reader.readuntil(b"\r\n\r\n"))[9:12].decode()
        self._answers[status] += 1
        if status != "101":
            raise ConnectionError(status)

    async def _read(self, reader: asyncio.StreamReader, until: bytes = b"") -> None:
        """Read, and look at frames only as much as needed: for the end of a replay, and for a close."""
        tail = b""
        while data := await reader.read(READ_BYTES):
            tail = tail[-200:] + data
            if until and until in tail:
                return
            if tail[-140:].rfind(b"\x88") >= 0:
                _raise_if_closed(tail[-140:])

    async def _write(self, writer: asyncio.StreamWriter, sent: Iterator[bytes]) -> None:
        for data in sent:
            writer.write(data)
            await writer.drain()
            self._answers["sent"] += 1


def _raise_if_closed(tail: bytes) -> None:
    at = tail.rfind(b"\x88")
    frame = tail[at:]
    if len(frame) >= 4 and frame[1] == len(frame) - 2:
        raise frames.ClosedEarly(f"{int.from_bytes(frame[2:4], 'big')} {frame[4:]!r}")


async def _sent(writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    await writer.drain()


async def _is_usable(sending: asyncio.Task[None]) -> bool:
    with suppress(asyncio.CancelledError, OSError):
        await sending
        return True
    return False


async def _answer(reader: asyncio.StreamReader) -> str:
    """Read one whole answer; return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or b"0"))
    if b"connection: close" in head:
        raise ConnectionError(head[9:12].decode())
    return head[9:12].decode()


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _with_secrets(flooding: Flooding, count: int) -> str:
    """Make a conversation with so many secrets, or with as many as the server takes; return its public id."""

    def ask(path: str, body: object) -> bytes:
        connection = HTTPConnection("127.0.0.1", flooding.port, timeout=30)
        headers = dict(line.split(": ", 1) for line in authorization(flooding.token).splitlines())
        connection.request("POST", path, json.dumps(body), headers | {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise ConnectionError(f"{path}: {answer.status} {text[:500]!r}")
        return text

    settings = {"agent": {"llm": {"model": "none"}}, "workspace": {"working_dir": "."}}
    public_id = str(json.loads(ask("/agent/api/conversations", settings))["id"]).replace("-", "")
    values = ((f"SECRET_{n}", token_hex(16)) for n in range(count))
    with suppress(ConnectionError):
        while some := dict(islice(values, SECRETS_AT_ONCE)):
            ask(f"/agent/api/conversations/{public_id}/secrets", {"secrets": some})
    return public_id


async def _flood(flood: Flood, flooding: Flooding, answers: Counter[str]) -> None:
    clients = [Client(flood, flooding, place, answers) for place in range(flood.clients)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await asyncio.sleep(BEGUN_S)
    print("flooding", flush=True)
    await ended.wait()
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


def main() -> None:
    """Flood as stdin says."""
    os.nice(NICENESS)
    flooding = Flooding(**json.loads(sys.stdin.readline()))
    flood, answers = FLOODS[flooding.name], Counter[str]()
    if flood.secrets:
        flood = replace(flood, conversation=_with_secrets(flooding, flood.secrets))
    uvloop.run(_flood(flood, flooding, answers))
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
