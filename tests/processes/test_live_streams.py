"""Streams over HTTP through a server in a process of its own: as it is written, and to the server's end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest

from tests.support.people.clients import HTTP, WAIT_S, Server
from tests.support.wires.network import wait_until
from tests.support.wires.streams import ServerSentEvents

pytestmark = pytest.mark.one_engine

ENDS_S = 9.0
"""Before the server gives up on answers under way."""


class Reader:
    """One stream over the network."""

    def __init__(self, answer: httpx.Response) -> None:
        self.last_id = ""
        self.frames: list[dict[str, Any]] = []
        self._answer = answer
        self._frames = self._read()

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        events = ServerSentEvents()
        for text in self._answer.iter_text():
            yield from events.read(text)

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first frame that is wanted."""
        for last_id, frame in self._frames:
            self.last_id = last_id
            self.frames.append(frame)
            if wanted(frame):
                return frame
        raise AssertionError(f"The stream has ended: {self.frames[-3:]}")

    def of_type(self, type: str) -> dict[str, Any]:
        return self.until(lambda frame: frame["type"] == type)

    def rest(self) -> list[dict[str, Any]]:
        """Return what comes before the answer ends."""
        return [frame for _, frame in self._frames]


def say(server: Server, text: str) -> None:
    frame = {"type": "message", "id": str(uuid4()), "text": text}
    HTTP.post(f"{server.url}/api/native/conversations/talk/events", json=frame).raise_for_status()


@pytest.mark.no_second_try
def test_an_answer_comes_as_it_is_written_and_goes_on_after_a_restart(server: Server) -> None:
    server.start()
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"}).raise_for_status()
    address = f"{server.url}/api/native/conversations/talk/stream"
    with HTTP.stream("GET", address) as answer, ThreadPoolExecutor(1) as pool:
        reader = Reader(answer)
        reader.of_type("replay_complete")
        say(server, "Tell me")
        reader.of_type("delta")
        said = reader.until(lambda frame: frame["type"] == "event" and frame["source"] == "agent")
        assert reader.last_id == said["cursor"]
        began_at = time.monotonic()
        stopped = pool.submit(server.stop)
        assert reader.of_type("end")["code"] == 1012
        assert reader.rest() == []
        stopped.result(timeout=WAIT_S)
    assert time.monotonic() - began_at < ENDS_S
    server.start()
    say(server, "Once more")
    with HTTP.stream("GET", address, headers={"Last-Event-ID": reader.last_id}) as answer:
        again = Reader(answer)
        again.until(lambda frame: frame["type"] == "event" and "Once more" in frame["text"])
    seqs = [frame["seq"] for frame in [*reader.frames, *again.frames] if frame["type"] == "event"]
    assert seqs == list(range(len(seqs)))


def test_a_client_that_leaves_leaves_nothing_behind(server: Server) -> None:
    server.start()
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"}).raise_for_status()
    process = psutil.Process(server.pid)
    before = len(process.net_connections())
    for path in ("conversations/talk/stream", "stream"):
        with HTTP.stream("GET", f"{server.url}/api/native/{path}") as answer:
            Reader(answer).of_type("hello")
    wait_until(lambda: len(process.net_connections()) <= before)
    assert "Traceback" not in server.log.read_text()
