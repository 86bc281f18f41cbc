"""The channel layer that carries hints between processes over Redis, while it is available.

channels-redis has one, too; while Redis is away it fails callers that join a group, logs a traceback a
second, and never rejoins the groups joined meanwhile. Messages and names on the wire are the same. With keys,
messages are encrypted in the same way (Fernet), and messages without one of the keys are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from channels_redis.serializers import registry
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from conversations.hint_channels.base import BEAT_S, RETRY_S, WAIT_S, HintChannel, Link

SILENT_S = 2.5  # Redis is away if no beat comes back within this time of listening


class RedisHints(HintChannel):
    def __init__(self, *, url: str, keys: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._url = url
        self._keys = keys

    def _new_link(self) -> Link:
        return _Link(self._url, self._keys, own=f"{self._prefix}beat.{uuid4().hex}")


class _Link(Link):
    """The connections of one event loop: one that publishes, and one that receives and is kept."""

    SERVICE = "Redis"

    def __init__(self, url: str, keys: Sequence[str], *, own: str) -> None:
        super().__init__()
        # The library's own timeouts and retries would make callers wait for many seconds.
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
        self._joined: set[str] = set()  # what Redis has confirmed on this connection
        self._joining: dict[str, asyncio.Event] = {}
        self._pubsub: PubSub | None = None
        self._publishing = asyncio.Lock()
        self._silent_s = 0.0  # the time of listening since the last beat came back

    async def add(self, name: str, channel: str) -> None:
        """Add the channel, and wait for Redis briefly; the connection joins the group once it is there."""
        await super().add(name, channel)
        if name in self._joined or self.away_since is not None:
            return
        joined = self._joining.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(WAIT_S):
                if self._pubsub is not None:
                    await self._pubsub.subscribe(name)
                await joined.wait()
        except (RedisError, OSError, TimeoutError):
            pass  # the task that keeps the connection notices it, too, and joins again

    async def discard(self, name: str, channel: str) -> None:
        await super().discard(name, channel)
        if name in self._groups:
            return
        self._joining.pop(name, None)
        if name in self._joined:
            self._joined.discard(name)
            if self._pubsub is not None:
                try:
                    async with asyncio.timeout(WAIT_S):
                        await self._pubsub.unsubscribe(name)
                except (RedisError, OSError, TimeoutError):
                    pass  # messages without a reader are ignored

    async def publish(self, name: str, message: Mapping[str, Any]) -> None:
        data = self._format.serialize(message)
        async with self._publishing:
            self._require_there()
            try:
                await self._redis.publish(name, data)
            except (RedisError, OSError, TimeoutError) as error:
                raise self._away(error) from error
            if self._keeping is None:
                self._note_back()

    async def close(self) -> None:
        await super().close()
        async with self._publishing:  # a message being sent may be opening a connection
            await self._redis.aclose()

    # The connection that receives

    async def _keep(self) -> None:
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
                # The requested time, not the elapsed one: a busy event loop does not listen.
                self._silent_s += wait_s
            if self._silent_s > SILENT_S:
                raise TimeoutError(f"nothing came back for {SILENT_S} s")
            if now() >= beat_at:
                beat_at = now() + BEAT_S
                await self._beat()

    async def _beat(self) -> None:
        """Send this process a message; if it cannot be sent, it does not come back, which is noticed."""
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
        elif message["type"] == "message" and name in self._groups:
            try:
                hint = self._format.deserialize(message["data"])
            except Exception:  # any client of Redis may have sent it; readers find that it is no hint
                self._note_unreadable()
                hint = None
            self._pass_on(name, hint)

    async def _note_joined(self, name: str) -> None:
        if name == self._own:
            await self._beat()
        elif name not in self._groups and self._pubsub is not None:
            await self._pubsub.unsubscribe(name)  # it was discarded before this came
            return
        self._joined.add(name)
        if (joining := self._joining.pop(name, None)) is not None:
            joining.set()
