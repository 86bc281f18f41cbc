"""The channel layer that hints travel by between processes: Redis, as long as it is there.

channels-redis has one too; while Redis is away it fails those who join a group, logs a traceback a second,
and never joins again what was joined meanwhile. Messages and names on the wire are the same. With keys,
messages are encrypted as it does that, by Fernet, and what was not encrypted by one of them is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import structlog
from channels.layers import BaseChannelLayer
from channels_redis.serializers import registry
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

logger = structlog.stdlib.get_logger(__name__)

WAIT_S = 0.4
"""The longest that anybody waits for Redis: for a connection, for an answer, for a group to be joined."""
RETRY_S = 0.5
"""A lost connection is made again this often."""
BEAT_S = 1.0
"""Each process sends itself a message this often, all the way through Redis."""
CANCEL_S = 0.05
"""How long a task that was cancelled may take before it is cancelled again."""
SILENT_S = 2.5
"""Redis is away once none of them has come back while it was listened to for so long."""

BACK = {"type": "hint", "group": "", "kind": "back"}
"""What each channel receives once Redis is back: hints may have been lost."""


class RedisAway(ConnectionError):
    """Redis does not answer just now."""


class RedisHints(BaseChannelLayer):
    """A channel layer over Redis' publish and subscribe, which heals by itself."""

    extensions = ("groups",)

    def __init__(self, *, url: str, prefix: str, keys: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._url = url
        self._keys = keys
        self._prefix = prefix
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, _Link] = WeakKeyDictionary()

    @property
    def away_since(self) -> datetime | None:
        """When the first of this process's connections was lost that is not back; None if all are there."""
        moments = [link.away_since for link in list(self._links.values())]
        return min((moment for moment in moments if moment is not None), default=None)

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Return the name of a new channel of this process; Redis is not asked."""
        return self._link().new_channel(f"{self._prefix}{prefix}{uuid4().hex}")

    async def receive(self, channel: str) -> Any:
        """Return the next message of a channel; whatever somebody has sent, if it can be decoded."""
        return await self._link().receive(channel)

    async def group_add(self, group: str, channel: str) -> None:
        """Let a channel receive what the group is sent: at once, or as soon as Redis is there."""
        await self._link().add(self._name(group), channel)

    async def group_discard(self, group: str, channel: str) -> None:
        """Let a channel receive no more of the group."""
        await self._link().discard(self._name(group), channel)

    async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
        """Send a message to all processes. Raise RedisAway, after WAIT_S at the latest."""
        await self._link().publish(self._name(group), message)

    async def close(self) -> None:
        """Give back the connections of the running event loop."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.close()

    def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            self._links[loop] = _Link(self._url, self._keys, own=f"{self._prefix}beat.{uuid4().hex}")
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


class _Link:
    """The connections of one event loop: one that publishes, and one that receives and is kept."""

    def __init__(self, url: str, keys: Sequence[str], *, own: str) -> None:
        # Timeouts and tries are said here: the library's own would make somebody wait for many seconds.
        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=WAIT_S,
            socket_connect_timeout=WAIT_S,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
        )
        self._format = registry.get_serializer("msgpack", symmetric_encryption_keys=list(keys))
        self._own = own
        self._queues: dict[str, asyncio.Queue[Any]] = {}
        self._groups: dict[str, set[str]] = {}
        """The channels of each group, whether or not Redis knows."""
        self._joined: set[str] = set()
        """What Redis has confirmed on this connection."""
        self._joining: dict[str, asyncio.Event] = {}
        self._pubsub: PubSub | None = None
        self._publishing = asyncio.Lock()
        self._is_closed = False
        self._keeping: asyncio.Task[None] | None = None
        self._lost = 0
        self._refused_until = 0.0
        self._silent_s = 0.0
        """How long it was listened to in vain since the last beat came back."""
        self.away_since: datetime | None = None
        self._has_told_unreadable = False

    def new_channel(self, channel: str) -> str:
        self._queues[channel] = asyncio.Queue()
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
        return channel

    async def receive(self, channel: str) -> Any:
        return await self._queues[channel].get()

    async def add(self, name: str, channel: str) -> None:
        """Note the wish, then wait for Redis a little: the connection joins it whenever it is made."""
        self._groups.setdefault(name, set()).add(channel)
        if name in self._joined or self.away_since is not None:
            return
        joined = self._joining.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(WAIT_S):
                if self._pubsub is not None:
                    await self._pubsub.subscribe(name)
                await joined.wait()
        except (RedisError, OSError, TimeoutError):
            pass  # who keeps the connection finds that out as well, and joins again

    async def discard(self, name: str, channel: str) -> None:
        channels = self._groups.get(name, set())
        channels.discard(channel)
        if channels:
            return
        self._groups.pop(name, None)
        self._joining.pop(name, None)
        if name in self._joined:
            self._joined.discard(name)
            if self._pubsub is not None:
                try:
                    async with asyncio.timeout(WAIT_S):
                        await self._pubsub.unsubscribe(name)
                except (RedisError, OSError, TimeoutError):
                    pass  # what comes for nobody is passed over

    async def publish(self, name: str, message: Mapping[str, Any]) -> None:
        data = self._format.serialize(message)
        async with self._publishing:
            if self._is_closed or self._is_refusing():
                self._lost += 1
                raise RedisAway("Redis is away.")
            try:
                await self._redis.publish(name, data)
            except (RedisError, OSError, TimeoutError) as error:
                self._lost += 1
                self._note_away(error)
                raise RedisAway("Redis is away.") from error
            if self._keeping is None:
                self._note_back()

    def _is_refusing(self) -> bool:
        """Say whether nobody is to wait for Redis again just now."""
        if self.away_since is None:
            return False
        # Who keeps a connection looks for Redis; in a process that only publishes, publishing does.
        return self._keeping is not None or asyncio.get_running_loop().time() < self._refused_until

    async def close(self) -> None:
        self._is_closed = True
        while self._keeping is not None and not self._keeping.done():
            self._keeping.cancel()  # once is not enough: while it connects, the library may swallow it
            await asyncio.wait({self._keeping}, timeout=CANCEL_S)
        async with self._publishing:  # what is being sent may be making a connection
            await self._redis.aclose()

    # The connection that receives

    async def _keep(self) -> None:
        """Receive until cancelled, over one connection after the other."""
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await self._receive_by(pubsub)
            except Exception as error:  # whatever it was, a new connection is the answer
                self._note_away(error)
            finally:
                self._pubsub = None
                self._joined.clear()
            await asyncio.sleep(RETRY_S)

    async def _receive_by(self, pubsub: PubSub) -> None:
        now = asyncio.get_running_loop().time
        async with asyncio.timeout(2 * WAIT_S):  # to connect, and to ask
            await pubsub.connect()  # type: ignore[no-untyped-call]
            self._pubsub = pubsub
            await pubsub.subscribe(*self._groups, self._own)  # in this order: its answer is the last
        self._silent_s = 0.0
        beat_at = now() + BEAT_S
        while True:
            wait_s = max(0.01, beat_at - now())
            message = await pubsub.get_message(timeout=wait_s)
            if message is not None:
                await self._take(message)
            else:
                # What was asked for, however long it took: an event loop that is busy does not listen.
                self._silent_s += wait_s
            if self._silent_s > SILENT_S:
                raise TimeoutError(f"nothing came back for {SILENT_S} s")
            if now() >= beat_at:
                beat_at = now() + BEAT_S
                await self._beat()

    async def _beat(self) -> None:
        """Send this process a message; one that cannot be sent does not come back, and that is noticed."""
        try:
            await self._redis.publish(self._own, b"")
        except (RedisError, OSError, TimeoutError):
            self._silent_s += WAIT_S

    async def _take(self, message: Mapping[str, Any]) -> None:
        name = message["channel"].decode(errors="replace")
        if message["type"] == "subscribe":
            await self._note_joined(name)
        elif message["type"] == "message" and name == self._own:
            self._silent_s = 0.0
            self._note_back()
        elif message["type"] == "message":
            for channel in self._groups.get(name, ()):
                self._queues[channel].put_nowait(self._decoded(message["data"]))

    def _decoded(self, data: bytes) -> Any:
        try:
            return self._format.deserialize(data)
        except Exception:  # anybody may have sent it; who reads it finds that it is no hint
            self._note_unreadable()
            return None

    def _note_unreadable(self) -> None:
        if self._has_told_unreadable:
            return
        self._has_told_unreadable = True
        logger.warning(
            "A hint could not be read, so readers get such events by a slow poll: "
            "give all processes the same SECRET_KEY, and a REDIS_URL by the network in all or in none"
        )

    async def _note_joined(self, name: str) -> None:
        if name == self._own:
            await self._beat()
        elif name not in self._groups and self._pubsub is not None:
            await self._pubsub.unsubscribe(name)  # it was discarded before this came
            return
        self._joined.add(name)
        if (joining := self._joining.pop(name, None)) is not None:
            joining.set()

    def _note_away(self, error: BaseException) -> None:
        self._refused_until = asyncio.get_running_loop().time() + RETRY_S
        if self.away_since is None:
            self.away_since = datetime.now(UTC)
            logger.warning(
                "Redis cannot be reached, so readers get new events by a slow poll until it is back",
                error=str(error) or type(error).__name__,
            )

    def _note_back(self) -> None:
        if self.away_since is None:
            return
        seconds = (datetime.now(UTC) - self.away_since).total_seconds()
        logger.info("Redis is back", seconds=round(seconds, 1), hints_lost=self._lost)
        self.away_since, self._lost = None, 0
        for queue in self._queues.values():
            queue.put_nowait(BACK)
