"""All clients of a round, which use several conversations of every wire until the round is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import httpx
from websockets import WebSocketException

from faults.checker.history import Did, HistoryFile
from faults.suite.clients.creations import Creator, Starter
from faults.suite.clients.imports import Importer
from faults.suite.clients.native import NativeClient
from faults.suite.clients.openhands_v0 import SocketIOSender
from faults.suite.clients.openhands_v1 import WORKSPACE, V1Client
from faults.suite.clients.purges import Purger
from faults.suite.clients.remote import RemoteAgent, agent_of
from faults.suite.clients.stage import AGAIN_S, Stage, words_of

LEAVE_WAIT_S = 90.0
BEGIN_WAIT_S = 300.0
SENDERS_BY_REST, SENDERS_BY_SOCKET, READERS = 3, 3, 2

Work = Callable[[str, str], Awaitable[None]]


class Talks(NamedTuple):
    """The conversations of a round."""

    recorded: Sequence[str]
    """In which clients record events, and nothing else writes."""
    v0: str
    v1: str
    remote: str
    """Whose agent is a program outside the server."""


class Load:
    """All clients of one round, which ask through the given ports."""

    def __init__(
        self,
        ports: Sequence[int],
        history: HistoryFile,
        rng: random.Random,
        *,
        secret: str,
        runs_agents: bool,
    ) -> None:
        """Without `runs_agents` the servers run no agents, and no program plays their turns."""
        self.stage = Stage(ports, history, rng, secret=secret)
        self.talks = Talks(
            [f"{self.stage.prefix}-{name}" for name in ("one", "two", "three")],
            *(self.stage.new_id() for _ in range(3)),
        )
        self._runs_agents = runs_agents
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Create the conversations, and let the clients begin."""
        await self._prepare()
        for number, (work, talk) in enumerate(self._works()):
            name = f"{work.__name__}{number}"
            self._tasks.append(asyncio.create_task(self._until_over(work, talk, name)))

    async def _prepare(self) -> None:
        """Store the secret, and create every conversation that is there from the beginning."""
        native = "/api/native/conversations"
        await self._done("/api/secrets", {"name": "OF_THE_SUITE", "value": self.stage.secret}, taken=400)
        for talk in (*self.talks.recorded, self.talks.v0, self.talks.remote):
            await self._done(native, {"id": talk, "title": f"{talk} is chosen"}, taken=409)
        await self._done(
            "/agent/api/conversations", {"conversation_id": self.talks.v1, "workspace": WORKSPACE}
        )
        remote = {"agent": f"remote:{agent_of(self.talks.remote)}"}
        await self._done(f"{native}/{self.talks.remote}/options", remote, method="PATCH")
        for talk in (self.talks.v0, self.talks.v1, self.talks.remote):
            self.stage.add(Did.SHARED, talk, "")

    async def _done(self, path: str, body: object, *, method: str = "POST", taken: int = 200) -> None:
        """Ask until it is done, now or by an earlier try. Raise RuntimeError if it never is."""
        said = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_WAIT_S):
                while True:
                    with suppress(httpx.TransportError):
                        answer = await self.stage.http.request(method, f"{self.stage.url()}{path}", json=body)
                        if answer.is_success or answer.status_code == taken:
                            return
                        said = words_of(answer)
                    await asyncio.sleep(AGAIN_S)
        raise RuntimeError(f"{path} is not served within {BEGIN_WAIT_S:g} s: {said}")

    def _works(self) -> Iterator[tuple[Work, str]]:
        """Yield what each client does, and in which conversation."""
        native, creator, v1 = NativeClient(self.stage), Creator(self.stage), V1Client(self.stage)
        recording: list[Work] = [
            *[native.send_by_rest] * SENDERS_BY_REST,
            *[native.send_by_socket] * SENDERS_BY_SOCKET,
            *[native.read] * READERS,
            native.look_again,
        ]
        for number, work in enumerate(recording):
            yield work, self.talks.recorded[number % len(self.talks.recorded)]
        yield SocketIOSender(self.stage).converse, self.talks.v0
        yield native.read, self.talks.v0
        yield v1.say_by_rest, self.talks.v1
        yield v1.converse, self.talks.v1
        yield creator.create, ""
        yield creator.fork, self.talks.recorded[0]
        yield Starter(self.stage).start, ""
        yield Purger(self.stage).purge, ""
        yield Importer(self.stage).bring, ""
        if self._runs_agents:
            remote = RemoteAgent(self.stage)
            yield remote.ask, self.talks.remote
            yield remote.play, self.talks.remote

    async def _until_over(self, work: Work, talk: str, name: str) -> None:
        while not self.stage.is_over:
            with suppress(httpx.TransportError, OSError, WebSocketException, TimeoutError):
                await work(talk, name)
            await asyncio.sleep(AGAIN_S)

    async def served_again(self, within_s: float) -> float | None:
        """Return after how many seconds an event is acknowledged that is sent from now on; None if never."""
        loop, service = asyncio.get_running_loop(), self.stage.service
        began = loop.time()
        service.waits_for = service.begun + 1
        service.served.clear()
        try:
            async with asyncio.timeout(within_s):
                await service.served.wait()
        except TimeoutError:
            return None
        return loop.time() - began

    async def end(self) -> None:
        """Wait until every client has finished what is under way, and has left."""
        self.stage.is_over = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LEAVE_WAIT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error
        await self.stage.http.aclose()
