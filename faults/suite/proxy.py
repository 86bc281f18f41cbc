"""A small TCP proxy of the loopback that can be told to break what passes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum, auto

CHUNK = 64 * 1024
COMMIT = b"COMMIT\0"
SLOW_S = 0.05
"""How long each piece is held in a slow network."""


class Way(Enum):
    """What the proxy does with what passes."""

    OPEN = auto()
    SLOW = auto()
    """Each piece, in either direction, is late."""
    DEAF = auto()
    """Nothing passes, and no connection ends: as if a cable were pulled."""
    SHUT = auto()
    """New connections end at once."""


class Proxy:
    """Listens on a port of its own and passes connections on to its target."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._way = Way.OPEN
        self._opened = asyncio.Event()
        self._opened.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._to_target: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._commits_left = 0
        self._loses_all = False

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port, limit=CHUNK)

    async def close(self) -> None:
        """Listen no more, and end all connections."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()

    def set(self, way: Way) -> None:
        """Treat what passes in this way from now on."""
        self._way = way
        if way is Way.DEAF:
            self._opened.clear()
        else:
            self._opened.set()

    def cut(self) -> int:
        """Reset all connections; return how many there were."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    def half_close(self) -> None:
        """End one direction of each connection: the target is told so, and may answer."""
        for writer in list(self._to_target):
            with suppress(OSError, RuntimeError):
                writer.write_eof()

    def lose_commits(self, count: int, *, with_all: bool = False) -> None:
        """Cut the connections of the next so many commits when they are done and before that is told.

        `with_all` cuts all other connections, too.
        """
        self._commits_left = count
        self._loses_all = with_all

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._way is not Way.SHUT:
                await self._connected(reader, writer)
        except (OSError, RuntimeError, asyncio.CancelledError):  # one was closed while the other wrote to it
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=CHUNK)
        both = {writer, far_writer}
        self._writers |= both
        self._to_target.add(far_writer)
        losing = asyncio.Event()
        try:
            await asyncio.gather(
                self._copy(reader, far_writer, watch=losing), self._copy(far_reader, writer, cut_by=losing)
            )
        finally:
            self._writers -= both
            self._to_target.discard(far_writer)
            for each in both:
                each.transport.abort()

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        watch: asyncio.Event | None = None,
        cut_by: asyncio.Event | None = None,
    ) -> None:
        while data := await reader.read(CHUNK):
            if self._way is Way.SLOW:
                await asyncio.sleep(SLOW_S)
            await self._opened.wait()
            if cut_by is not None and cut_by.is_set():  # it is the answer to the commit
                if self._loses_all:
                    self.cut()
                raise ConnectionResetError
            if watch is not None and self._commits_left > 0 and COMMIT in data:
                self._commits_left -= 1
                watch.set()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
