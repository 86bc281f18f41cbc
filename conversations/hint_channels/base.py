"""What the channels that carry hints between processes have in common: who receives what, and outages.

A channel layer has one link for each event loop. A link keeps a connection that receives, makes it again when
it is lost, and then tells all who receive that hints may have been lost.
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

WAIT_S = 0.4
"""The longest that anybody waits for the service: to connect, for an answer, for a group to be joined."""
RETRY_S = 0.5
"""A lost connection is made again this often."""
CANCEL_S = 0.05
"""How long a task that was cancelled may take before it is cancelled again."""

BACK = {"type": "hint", "group": "", "kind": "back"}
"""What each channel receives once the service is back: hints may have been lost."""


class HintsAway(ConnectionError):
    """The service that carries hints does not answer now."""


class Link(ABC):
    """The connections of one event loop to the service."""

    SERVICE: ClassVar[str]
    """What the log calls it."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Any]] = {}
        self._groups: dict[str, set[str]] = {}
        """The channels of each group, whether or not the service knows."""
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False
        self._lost = 0
        self._refused_until = 0.0
        self.away_since: datetime | None = None
        self._has_told_unreadable = False

    @abstractmethod
    async def publish(self, name: str, message: Mapping[str, Any]) -> None:
        """Send a message to the group's channels in all processes. Raise HintsAway, soon."""

    @abstractmethod
    async def _keep(self) -> None:
        """Receive until cancelled, over one connection after the other."""

    async def add(self, name: str, channel: str) -> None:
        """Let a channel receive what the group is sent."""
        self._groups.setdefault(name, set()).add(channel)

    async def discard(self, name: str, channel: str) -> None:
        """Let a channel receive no more of the group."""
        channels = self._groups.get(name, set())
        channels.discard(channel)
        if not channels:
            self._groups.pop(name, None)

    async def close(self) -> None:
        """End the connection that receives; what is sent by this link afterwards is refused."""
        self._is_closed = True
        while self._keeping is not None and not self._keeping.done():
            self._keeping.cancel()  # once is not enough: while it connects, a library may swallow it
            await asyncio.wait({self._keeping}, timeout=CANCEL_S)

    def new_channel(self, channel: str) -> str:
        """Let a channel receive; the first one starts the connection."""
        self._queues[channel] = asyncio.Queue()
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
        return channel

    async def receive(self, channel: str) -> Any:
        """Return the next message of a channel."""
        return await self._queues[channel].get()

    def _pass_on(self, name: str, message: Any) -> None:
        for channel in self._groups.get(name, ()):
            self._queues[channel].put_nowait(message)

    def _require_there(self) -> None:
        """Raise HintsAway if nobody is to wait for the service again now."""
        if self._is_closed or self._is_refusing():
            self._lost += 1
            raise HintsAway(f"{self.SERVICE} is away.")

    def _is_refusing(self) -> bool:
        if self.away_since is None:
            return False
        # Who keeps a connection looks for the service; in a process that only publishes, publishing does.
        return self._keeping is not None or asyncio.get_running_loop().time() < self._refused_until

    def _away(self, error: BaseException) -> HintsAway:
        """Note that a message was lost, and return what to raise."""
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
    """A channel layer that heals by itself."""

    extensions = ("groups",)

    def __init__(self, *, prefix: str, **options: Any) -> None:
        super().__init__(**options)
        self._prefix = prefix
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = WeakKeyDictionary()

    def _new_link(self) -> Link:
        """Return the connections of the running event loop, none of them made yet."""
        raise NotImplementedError

    @property
    def away_since(self) -> datetime | None:
        """When the first of this process's connections was lost that is not back; None if all are there."""
        moments = [link.away_since for link in list(self._links.values())]
        return min((moment for moment in moments if moment is not None), default=None)

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Return the name of a new channel of this process; the service is not asked."""
        return self._link().new_channel(f"{self._prefix}{prefix}{uuid4().hex}")

    async def receive(self, channel: str) -> Any:
        """Return the next message of a channel; whatever somebody has sent, if it can be decoded."""
        return await self._link().receive(channel)

    async def group_add(self, group: str, channel: str) -> None:
        """Let a channel receive what the group is sent: at once, or as soon as the service is there."""
        await self._link().add(self._name(group), channel)

    async def group_discard(self, group: str, channel: str) -> None:
        """Let a channel receive no more of the group."""
        await self._link().discard(self._name(group), channel)

    async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
        """Send a message to all processes. Raise HintsAway, soon."""
        await self._link().publish(self._name(group), message)

    async def close(self) -> None:
        """Give back the connections of the running event loop."""
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
        """Give back, at the latest, when the event loop is closed: a late hint may have made connections."""
        close_loop = loop.close

        def close() -> None:
            if loop in self._links and not loop.is_closed() and not loop.is_running():
                loop.run_until_complete(self.close())
            close_loop()

        loop.close = close  # type: ignore[method-assign]

    def _name(self, group: str) -> str:
        return f"{self._prefix}__group__{group}"
