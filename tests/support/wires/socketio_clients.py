"""Socket.IO clients as people use them, in Python and in JavaScript, behind one small interface."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, TypeVar
from urllib.parse import urlencode

import socketio

from tests.support.people.clients import WAIT_S, Server
from tests.support.wires.npm import SOCKET_IO_CLIENT
from tests.support.wires.v0_socket import Refused

T = TypeVar("T")


class End(Enum):
    """Why a connection is over."""

    BY_SERVER = auto()
    """The server said so: no client comes back by itself."""
    BY_NETWORK = auto()
    """Nobody said so: the client tries again until it is back."""


class SocketIOClient(ABC):
    """One client, what it has received, and how its connections ended.

    After a drop it comes back by itself, and asks for what follows the last number that it received.
    """

    transports: Sequence[str] = ("websocket",)

    def __init__(self, server: Server) -> None:
        self.frames: list[dict[str, Any]] = []
        self.connections = 0
        self.ends: list[End] = []
        self._refusal: dict[str, Any] | None = None
        self._url = server.url
        self._something = asyncio.Event()

    async def connect(
        self, conversation_id: str | None, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> None:
        """Join, with the query of the web frontend unless told otherwise. Raise Refused."""
        whole = {
            "latest_event_id": -1,
            "conversation_id": conversation_id,
            "providers_set": "",
            "session_api_key": "null",
            **query,
        }
        given = {name: value for name, value in whole.items() if value is not None}
        await self._open(given, dict(headers or {}))
        await self._until(lambda: self.connections or self._refusal)
        if self._refusal is not None:
            raise Refused(self._refusal)

    @abstractmethod
    async def _open(self, query: dict[str, Any], headers: dict[str, str]) -> None:
        """Begin to connect."""

    @abstractmethod
    async def emit(self, *values: Any, name: str = "oh_user_action") -> None:
        """Send an event."""

    @abstractmethod
    async def ask(self, *values: Any, name: str = "oh_user_action") -> Any:
        """Send an event and return its acknowledgement."""

    @abstractmethod
    async def drop(self) -> None:
        """Break the connection, as a network does."""

    @abstractmethod
    async def leave(self) -> None:
        """Disconnect and end."""

    async def say(self, text: str) -> Any:
        """Send a message and return its acknowledgement."""
        return await self.ask(
            {"action": "message", "args": {"content": text, "image_urls": [], "file_urls": []}}
        )

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first frame that meets the condition, waiting for it."""
        return await self._until(lambda: next(filter(condition, self.frames), None))

    async def back(self, *, times: int = 1) -> None:
        """Return once it has connected again, so many times in all."""
        await self._until(lambda: self.connections > times)

    async def ended(self) -> End:
        """Return how its first connection ended, waiting for that."""
        return await self._until(lambda: next(iter(self.ends), None))

    @property
    def numbers(self) -> list[int]:
        """The ids of the events received, in order."""
        return [frame["id"] for frame in self.frames if isinstance(frame.get("id"), int)]

    async def _until(self, found: Callable[[], T | None]) -> T:
        async with asyncio.timeout(WAIT_S):
            while not (value := found()):
                self._something.clear()
                await self._something.wait()
        return value

    def _connected(self) -> None:
        self.connections += 1
        self._something.set()

    def _refused(self, refusal: dict[str, Any]) -> None:
        self._refusal = refusal
        self._something.set()

    def _received(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        self._something.set()

    def _disconnected(self, end: End) -> None:
        self.ends.append(end)
        self._something.set()


class PythonClient(SocketIOClient):
    """The client of python-socketio."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._client = socketio.AsyncClient()
        self._client.on("connect", self._connected)
        self._client.on("oh_event", self._received)
        self._client.on("disconnect", self._ended)
        self._client.on("connect_error", self._failed)

    async def _open(self, query: dict[str, Any], headers: dict[str, str]) -> None:
        def address() -> str:
            last = self.numbers[-1] if self.numbers else query["latest_event_id"]
            return f"{self._url}?{urlencode({**query, 'latest_event_id': last})}"

        with suppress(socketio.exceptions.ConnectionError):  # `connect_error` has the server's own words
            await self._client.connect(
                address, headers=headers, transports=list(self.transports), wait_timeout=WAIT_S
            )

    async def emit(self, *values: Any, name: str = "oh_user_action") -> None:
        await self._client.emit(name, values)

    async def ask(self, *values: Any, name: str = "oh_user_action") -> Any:
        return await self._client.call(name, values, timeout=WAIT_S)

    async def drop(self) -> None:
        await self._client.eio.ws.close()

    async def leave(self) -> None:
        await self._client.shutdown()

    def _ended(self, reason: str) -> None:
        by_server = reason == self._client.reason.SERVER_DISCONNECT
        self._disconnected(End.BY_SERVER if by_server else End.BY_NETWORK)

    def _failed(self, answer: Any) -> None:
        if isinstance(answer, dict):  # text says that there was nobody to refuse anything
            self._refused(answer)


class NodeClient(SocketIOClient):
    """The client of npm's socket.io-client, in a process of its own."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def _open(self, query: dict[str, Any], headers: dict[str, str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(SOCKET_IO_CLIENT.directory / "client.mjs"),
            stdin=PIPE,
            stdout=PIPE,
            limit=16 * 1024 * 1024,
        )
        self._reading = asyncio.create_task(self._read())
        self._tell("connect", url=self._url, query=query, headers=headers, transports=list(self.transports))

    async def emit(self, *values: Any, name: str = "oh_user_action") -> None:
        self._tell("emit", name=name, values=values)

    async def ask(self, *values: Any, name: str = "oh_user_action") -> Any:
        number = len(self._answers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self._tell("ask", name=name, values=values, number=number)
        async with asyncio.timeout(WAIT_S):
            return await self._answers[number]

    async def drop(self) -> None:
        self._tell("break")

    async def leave(self) -> None:
        if self._process is None or self._reading is None:
            return
        assert self._process.stdin is not None
        self._tell("disconnect")
        self._process.stdin.close()
        try:
            async with asyncio.timeout(WAIT_S):
                await self._reading
        finally:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _tell(self, command: str, **members: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **members}).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._take(**json.loads(line))

    def _take(self, happened: str, **members: Any) -> None:
        match happened:
            case "connected":
                self._connected()
            case "refused":
                self._refused(members)
            case "disconnected":
                by_server = members["reason"] == "io server disconnect"
                self._disconnected(End.BY_SERVER if by_server else End.BY_NETWORK)
            case "received":
                self._received(members["frame"])
            case "acknowledged":
                self._answers[members["number"]].set_result(members["answer"])
