"""The hints of one process: received once, passed to every reader here, backed up by a slow poll."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from conversations import counts, live
from conversations.counts import Counted
from conversations.hint_channels.base import BACK
from conversations.hints import Hint, checked, size_of
from conversations.outages import Outage
from conversations.server_log import printable
from sessions_app import astore
from sessions_app.capacity import heap
from sessions_app.event_loops import PerEventLoop, uncancelled
from sessions_app.identity import access_watch
from sessions_app.live.event_cache import Pages, RecentEvents
from sessions_app.live.status import states_of

POLL_S = 10.0
"""A lost hint with no later one delays an event by at most this long."""
JOIN_WAIT_S = 0.5
"""A joining reader waits at most this long for the hint channel; a failed join is retried."""
RETRY_S = 1.0
PASSED_AT_ONCE = 50
"""At most this many readers of a group have a hint before the event loop does other work."""
UNREAD_MAX = 1_000
"""At most this many hints wait for one reader; for a further one, the oldest is dropped. If it announced
events, the reader reads them from the log."""
UNREAD_WHOLE_MAX = 50
"""At most this many waiting hints contain events; later ones only announce that the log has grown."""


class Subscription:
    """The hints of one group for one reader, bounded."""

    def __init__(self, group: str) -> None:
        self.group = group
        # Called with a hint while the reader waits for one; returns whether it was shown.
        self.take_at_once: Callable[[Hint, int], bool] = lambda hint, characters: False
        self._hints: deque[tuple[Hint, int]] = deque()
        self._characters = 0
        self._something = asyncio.Event()
        self._is_awaited = False

    def offer(self, hint: Hint, characters: int = 0) -> None:
        """Add a hint that contains this many characters; if too many hints wait, the oldest is dropped.

        The reader sees it after `pass_on`.
        """
        # At most this much text waits for one reader: further events are left out of hints, and further
        # pieces are dropped.
        unread_max_characters = 1024 * 1024
        is_too_much = self._characters + characters > unread_max_characters
        if hint["kind"] == "appended" and (is_too_much or len(self._hints) >= UNREAD_WHOLE_MAX):
            hint, characters = {**hint, "events": []}, 0
        elif is_too_much:  # a piece of an answer: the next one shows that this one is missing
            return
        if len(self._hints) >= UNREAD_MAX:
            self._taken()
        self._hints.append((hint, characters))
        self._characters += characters

    def pass_on(self) -> None:
        """Wake the reader if hints are queued."""
        # Showing without a wake-up: waking the task costs as much as all the rest of one event.
        while self._is_awaited and self._hints and self.take_at_once(*self._hints[0]):
            self._taken()
        if self._hints:
            self._something.set()

    def _taken(self) -> Hint:
        hint, characters = self._hints.popleft()
        self._characters -= characters
        return hint

    async def next(self) -> Hint:
        while not self._hints:
            self._something.clear()
            self._is_awaited = True
            try:
                await self._something.wait()
            finally:
                self._is_awaited = False
        return self._taken()


class Hub:
    """All subscriptions of one event loop, with one channel of the channel layer."""

    def __init__(self) -> None:
        self.recent = RecentEvents()
        self.pages = Pages()
        # One step of all replays at a time.
        self.replaying = asyncio.Lock()
        self._has_lost_reader = False
        self._groups: dict[str, set[Subscription]] = defaultdict(set)
        self._changes: Counter[str] = Counter()
        # Readers of large groups with queued hints, the longest waiting first.
        self._crowd: OrderedDict[Subscription, None] = OrderedDict()
        self._is_passing = False
        self._channel = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: set[int] = set()
        self._change = asyncio.Event()
        self._poll_now = asyncio.Event()
        self._starting = asyncio.Lock()
        self._offering = asyncio.Lock()
        self._joined: set[str] = set()
        self._settling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._channel_failing = Outage(__name__, "The hint channel failed", "The hint channel works again")
        self._malformed = Outage(__name__, "A message in the hint channel is not a hint and was ignored")
        self._unread = Outage(
            __name__,
            "The states of conversations could not be read",
            "The states of conversations are read again",
        )

    @asynccontextmanager
    async def subscribe(self, group: str) -> AsyncIterator[Subscription]:
        """Receive the hints of `group` from here on: subscribe first, then read."""
        await uncancelled(self.start())  # the tasks are shared with readers that do not leave
        subscription = Subscription(group)
        self._groups[group].add(subscription)
        try:
            await uncancelled(self._settle(group))
            yield subscription
        finally:
            self._groups[group].discard(subscription)
            self._has_lost_reader = True
            if not self._groups[group]:
                del self._groups[group], self._changes[group]
                await uncancelled(self._settle(group))

    def changes(self, group: str) -> int:
        """Return how often something beside the log has changed since the group has readers here.

        A state that was read before the last change may be stale.
        """
        return self._changes[group]

    async def close(self) -> None:
        """End the tasks; readers receive nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await live.close_hint_channel()

    async def start(self) -> None:
        async with self._starting:
            if not self._tasks:
                live.receive_here(asyncio.get_running_loop(), self._receive)
                await self._open_channel()
                create = asyncio.get_running_loop().create_task
                works = (self._listen, self._poll, self._rejoin, self._retry, self._tell, self._watch_access)
                self._tasks = [create(work()) for work in works]

    async def _open_channel(self) -> bool:
        """Get a channel for this process; return whether there is one."""
        try:
            async with asyncio.timeout(JOIN_WAIT_S):
                self._channel = self._channel or await live.hint_channel().new_channel()
        except Exception as error:  # without hints the poll still finds everything
            self._channel_failing.failed(error)
        return bool(self._channel)

    async def _settle(self, group: str) -> None:
        """Join the group if it has readers here, otherwise leave it; later readers wait for that."""
        async with self._settling.setdefault(group, asyncio.Lock()):
            if group not in self._groups:
                self._joined.discard(group)
                layer = live.hint_channel()
                with suppress(Exception):  # a hint without readers is ignored anyway
                    async with asyncio.timeout(JOIN_WAIT_S):
                        await layer.group_discard(group, self._channel)
            elif group not in self._joined and self._channel and await self._join(group):
                self._joined.add(group)

    async def _join(self, group: str) -> bool:
        layer = live.hint_channel()
        try:
            async with asyncio.timeout(JOIN_WAIT_S):
                await layer.group_add(group, self._channel)
        except Exception as error:  # without hints the poll still finds everything
            self._channel_failing.failed(error)
            return False
        return True

    async def _listen(self) -> None:
        layer = live.hint_channel()
        while True:
            try:
                if not await self._open_channel():
                    raise ConnectionError("there is no channel yet")
                message = await layer.receive(self._channel)
            except Exception as error:
                self._channel_failing.failed(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._channel_failing.worked()
            self._take(message)

    def _take(self, message: object) -> None:
        """Receive one message; a malformed one must not end the listener or a reader."""
        if message is BACK:
            self._poll_now.set()
        elif (hint := checked(message)) is not None:
            counts.add(Counted.HINTS, live.RECEIVED)
            self._receive(hint["group"], hint)
        else:
            self._malformed.failed(ValueError(printable(repr(message))))

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            for group in set(self._groups) - self._joined:
                await self._settle(group)

    def _receive(self, group: str, hint: Hint) -> None:
        if group not in self._groups:  # the last reader has left, and the channel does not know it yet
            return
        match hint.get("kind"):
            case "changed":
                # A hint has no state, since others may write into the channel: it is read, once for all.
                self._changes[group] += 1
                self._changed.add(_conversation_of(group))
                self._change.set()
            case "appended":
                self.recent.keep(_conversation_of(group), hint["events"])  # for readers that fall behind
                self._offer(group, hint)
            case _:
                self._offer(group, hint)

    def _offer(self, group: str, hint: Hint, *, among: Container[Subscription] | None = None) -> None:
        """Offer a hint to the readers of a group, or only to those `among` these."""
        characters = _characters_of(hint)
        readers = [each for each in self._groups.get(group, ()) if among is None or each in among]
        for subscription in readers:
            subscription.offer(hint, characters)
        if len(readers) > PASSED_AT_ONCE:
            self._crowd.update(dict.fromkeys(readers))
            self._pass_on_soon()
        else:
            for subscription in readers:
                subscription.pass_on()

    def _pass_on_soon(self) -> None:
        if self._crowd and not self._is_passing:
            self._is_passing = True
            asyncio.get_running_loop().call_soon(self._pass_on)

    def _pass_on(self) -> None:
        """Deliver queued hints to the next PASSED_AT_ONCE readers."""
        self._is_passing = False
        for _ in range(min(PASSED_AT_ONCE, len(self._crowd))):
            subscription, _ = self._crowd.popitem(last=False)
            subscription.pass_on()
        self._pass_on_soon()

    async def _tell(self) -> None:
        """Read the states that changed, once for all readers here, and notify the readers."""
        while True:
            await self._change.wait()
            self._change.clear()
            changed, self._changed = self._changed, set()
            await self._offer_states(changed)

    async def _poll(self) -> None:
        """Send each reader the end of its log and its conversation's state, in case hints were lost."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._poll_now.wait()
            self._poll_now.clear()
            groups = list(self._groups)
            followed = {_conversation_of(group) for group in groups} - {0}
            await self._forget(followed)
            await self._offer_states(followed)
            for group in groups:
                if not _conversation_of(group):
                    self._offer(group, {"kind": "polled"})

    async def _forget(self, followed: set[int]) -> None:
        """Remove what is cached for readers that have left, and return its memory to the system."""
        if self._has_lost_reader:
            self._has_lost_reader = False
            self.recent.keep_only(followed)
            await heap.give_back()

    async def _offer_states(self, pks: set[int]) -> None:
        wanted = [pk for pk in pks if live.conversation_group(pk) in self._groups]
        if not wanted:
            return
        async with self._offering:  # otherwise an older state could be sent after a newer one
            # Later subscribers read the state themselves, and may know a newer one than this.
            readers = {pk: set(self._groups.get(live.conversation_group(pk), ())) for pk in wanted}
            try:
                states = await astore.call(states_of, wanted)
            except Exception as error:  # the next poll reads again
                self._unread.failed(error)
                return
            self._unread.worked()
            for pk, state in states.items():
                hint: Hint = {"kind": "state", "state": state}
                self._offer(live.conversation_group(pk), hint, among=readers[pk])

    async def _watch_access(self) -> None:
        async with self.subscribe(access_watch.GROUP) as hints:
            while True:
                await access_watch.take(await hints.next())

    async def _rejoin(self) -> None:
        # The in-memory layer forgets the members of a group after a day.
        rejoin_s = 3600.0
        while True:
            await asyncio.sleep(rejoin_s)
            for group in list(self._groups):
                await self._join(group)


def _characters_of(hint: Hint) -> int:
    match hint["kind"]:
        case "appended":
            return size_of(hint["events"])
        case "delta":
            return len(hint["text"]) + len(hint["reasoning"])
        case _:
            return 0


def _conversation_of(group: str) -> int:
    """Return the conversation of this group, 0 for a group of another kind."""
    name, _, pk = group.partition(".")
    return int(pk) if name == "conversation" else 0


_hubs = PerEventLoop(Hub)


def hub() -> Hub:
    return _hubs.get()


async def close() -> None:
    found = _hubs.pop()
    if found is not None:
        await found.close()
