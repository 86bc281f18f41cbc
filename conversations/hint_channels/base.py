"""The common part of the channels that carry hints between processes: groups, readers, outages.

A channel layer has one link for each event loop. A link keeps a connection that receives, replaces it when
it is lost, and then tells all readers that hints may have been lost.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import structlog
from channels.layers import BaseChannelLayer

logger = structlog.stdlib.get_logger(__name__)

WAIT_S = 0.4  # the longest wait for the service: to connect, for an answer, for a group to be joined
RETRY_S = 0.5  # the pause before a lost connection is made again
BEAT_S = 1.0  # each process sends itself a message this often, all the way through the service


# What each channel receives once the service is back: hints may have been lost.
BACK = {"type": "hint", "group": "", "kind": "back"}


class HintsAway(ConnectionError):
    """The service that carries hints does not answer."""


class Link(ABC):
    """The connections of one event loop to the service."""

    SERVICE: ClassVar[str]  # what the log calls it

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Any]] = {}
        self._groups: dict[str, set[str]] = {}  # the channels of each group, whether or not the service knows
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False
        self._lost = 0
        self._refused_until = 0.0
        self.away_since: datetime | None = None
        self._has_told_unreadable = False

    @abstractmethod
    async def publish(self, name: str, message: Mapping[str, Any]) -> None:
        """Send a message to the group's channels in all processes. Raise HintsAway soon."""

    @abstractmethod
    async def _keep(self) -> None:
        """Receive until cancelled, replacing lost connections."""

    async def add(self, name: str, channel: str) -> None:
        self._groups.setdefault(name, set()).add(channel)

    async def discard(self, name: str, channel: str) -> None:
        channels = self._groups.get(name, set())
        channels.discard(channel)
        if not channels:
            self._groups.pop(name, None)

    async def close(self) -> None:
        """End the connection that receives, and refuse later messages."""
        self._is_closed = True
        while self._keeping is not None and not self._keeping.done():
            self._keeping.cancel()  # once is not enough: while it connects, a library may swallow it
            await asyncio.wait({self._keeping}, timeout=0.05)

    def new_channel(self, channel: str) -> str:
        """Register a channel; the first one starts the connection."""
        self._queues[channel] = asyncio.Queue()
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
        return channel

    async def receive(self, channel: str) -> Any:
        return await self._queues[channel].get()

    def _pass_on(self, name: str, message: Any) -> None:
        for channel in self._groups.get(name, ()):
            self._queues[channel].put_nowait(message)

    def _require_there(self) -> None:
        """Raise HintsAway if callers should not wait for the service again yet."""
        now = asyncio.get_running_loop().time()
        # A kept connection finds the service again; in a process that only publishes, publishing does.
        may_not_ask = self._keeping is not None or now < self._refused_until
        if self._is_closed or (self.away_since is not None and may_not_ask):
            self._lost += 1
            raise HintsAway(f"{self.SERVICE} is away.")

    def _away(self, error: BaseException) -> HintsAway:
        """Note that a message was lost, and return the error to raise."""
        self._lost += 1
        self._note_away(error)
        return HintsAway(f"{self.SERVICE} is away.")

    def _note_away(self, error: BaseException) -> None:
        self._refused_until = asyncio.get_running_loop().time() + RETRY_S
        if self.away_since is None:
            self.away_since = datetime.now(UTC)
            logger.warning(
                f"{self.SERVICE} cannot be reached, "
                "so readers get new events by a slow poll until it is back",
                error=str(error) or type(error).__name__,
            )

    def _note_back(self) -> None:
        if self.away_since is None:
            return
        seconds = (datetime.now(UTC) - self.away_since).total_seconds()
        logger.info(f"{self.SERVICE} is back", seconds=round(seconds, 1), hints_lost=self._lost)
        self.away_since, self._lost = None, 0
        for queue in self._queues.values():
            queue.put_nowait(BACK)

    def _note_unreadable(self) -> None:
        if self._has_told_unreadable:
            return
        self._has_told_unreadable = True
        logger.warning(
            "A hint could not be read, so readers get such events by a slow poll: "
            "give all processes the same SECRET_KEY, and the same REDIS_URL or none"
        )


class HintChannel(BaseChannelLayer):
    """A channel layer that reconnects by itself."""

    extensions = ("groups",)

    def __init__(self, *, prefix: str, **options: Any) -> None:
        super().__init__(**options)
        self._prefix = prefix
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = WeakKeyDictionary()

    def _new_link(self) -> Link:
        """Return the unconnected link of the running event loop."""
        raise NotImplementedError

    @property
    def away_since(self) -> datetime | None:
        """Return since when any connection of this process is lost; None if none is."""
        moments = [link.away_since for link in list(self._links.values())]
        return min((moment for moment in moments if moment is not None), default=None)

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Return the name of a new channel of this process, without a call to the service."""
        return self._link().new_channel(f"{self._prefix}{prefix}{uuid4().hex}")

    async def receive(self, channel: str) -> Any:
        """Return the next message of a channel: anything decodable that any process has sent."""
        return await self._link().receive(channel)

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group: at once, or as soon as the service is back."""
        await self._link().add(self._name(group), channel)

    async def group_discard(self, group: str, channel: str) -> None:
        await self._link().discard(self._name(group), channel)

    async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
        await self._link().publish(self._name(group), message)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.close()

    def _link(self) -> Link:
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            self._links[loop] = self._new_link()
            self._close_with(loop)
        return self._links[loop]

    def _close_with(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the link with the event loop at the latest: a late hint may have opened connections."""
        close_loop = loop.close

        def close() -> None:
            if loop in self._links and not loop.is_closed() and not loop.is_running():
                loop.run_until_complete(self.close())
            close_loop()

        loop.close = close  # type: ignore[method-assign]

    def _name(self, group: str) -> str:
        return f"{self._prefix}__group__{group}"
