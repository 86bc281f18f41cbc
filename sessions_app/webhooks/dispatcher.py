"""The dispatcher: delivers the outbox to the endpoints, to each at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from conversations import live
from conversations.hints import Hint
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.models import Endpoint, EndpointKind
from sessions_app.processes import Process
from sessions_app.webhooks import deliveries, gathering
from sessions_app.webhooks import hooks as outbox_hooks
from sessions_app.webhooks.deliveries import Claim
from sessions_app.webhooks.gathering import Watermark
from sessions_app.webhooks.notifications import DeliveryFailed, Transport
from sessions_app.webhooks.transport import Webhook

_failing = Outage(__name__, "A round of the outbox failed and is tried again", "The outbox works again")
_failing_deliveries = Outage(__name__, "A delivery failed and is tried again")

# Hints of other processes may be lost, and some send none.
POLL_S = 5.0
# A conversation that never rests would otherwise hold one of the endpoint's places.
STEPS_MAX = 20

_NEWS = frozenset({"appended", "listed", "changed", deliveries.CHANGED})
# Without an endpoint, no other hint is news.
_WITHOUT_ENDPOINTS = frozenset({deliveries.CHANGED})


class _Lane:
    """One endpoint, and its running deliveries."""

    def __init__(self, endpoint: Endpoint, transport: Transport) -> None:
        self.endpoint = endpoint
        self.transport = transport
        self.tasks: dict[Claim, asyncio.Task[None]] = {}

    @property
    def room(self) -> int:
        return deliveries.PER_ENDPOINT - len(self.tasks)


class Dispatcher:
    """All deliveries of one process, as tasks of its event loop."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._hooks: Mapping[str, Any] = {}
        self._lanes: dict[int, _Lane] = {}
        # Claims that a failure has ended, with its text: released once the database is back.
        self._broken: dict[Claim, str] = {}
        self._horizon = Watermark()
        self._news = asyncio.Event()
        self._wakes = _WITHOUT_ENDPOINTS
        self._is_awake = True
        self._rounds = 0
        self._renewed_at = 0.0

    async def run(self) -> None:
        """Deliver until cancelled; then release running deliveries, which are repeated."""
        loop = asyncio.get_running_loop()

        def hear(hint: Hint) -> None:
            if not self._is_awake and hint["kind"] in self._wakes and not loop.is_closed():
                self._is_awake = True
                loop.call_soon_threadsafe(self._news.set)

        end = live.add_listener(hear)
        try:
            while True:
                self._is_awake = False  # before looking: later hints are for the next round
                seconds = POLL_S
                with _failing.counted():  # the next round tries again
                    seconds = await self._look()
                await self._sleep(seconds)
        finally:
            end()
            await self._close()

    async def _sleep(self, seconds: float) -> None:
        # Appends within this time are processed together.
        round_min_s = 0.02
        await asyncio.sleep(round_min_s)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _look(self) -> float:
        """Find what is new, start what is due, and return in how many seconds something will be due."""
        if self._rounds == 0:
            self._hooks = outbox_hooks.hooks_of_this_process()
            await astore.change(outbox_hooks.install, self._hooks)
        await self._give_back()
        housekeeping_rounds = 12
        if self._rounds % housekeeping_rounds == 0:
            await astore.change(deliveries.release_abandoned)
            await astore.change(deliveries.prune)
        self._rounds += 1
        endpoints = await astore.call(_served, self._hooks)
        await self._set_lanes(endpoints)
        self._wakes = _NEWS if endpoints else _WITHOUT_ENDPOINTS
        if not endpoints:
            return POLL_S
        more = await astore.change(_gathered, endpoints, self._horizon)
        await self._renew()
        for lane in self._lanes.values():
            for claim in await astore.change(
                deliveries.claim, lane.endpoint.pk, self._process, limit=lane.room
            ):
                self._start(lane, claim)
        if more:
            return 0.0
        free = [pk for pk, lane in self._lanes.items() if lane.room > 0]
        due_in = await astore.call(deliveries.next_due, free)
        return POLL_S if due_in is None else min(POLL_S, due_in.total_seconds())

    async def _renew(self) -> None:
        now = asyncio.get_running_loop().time()
        # Hints can make rounds much more frequent than a lease needs.
        if now >= self._renewed_at + POLL_S:
            self._renewed_at = now
            held = [claim for lane in self._lanes.values() for claim in lane.tasks]
            await astore.change(deliveries.renew, held)

    async def _give_back(self) -> None:
        # A claim stays here until this is stored: a round that fails tries it again.
        for claim, words in list(self._broken.items()):
            await astore.change(deliveries.failed, claim, words)
            del self._broken[claim]

    async def _set_lanes(self, endpoints: Collection[Endpoint]) -> None:
        """Keep a lane for each endpoint, with a transport that has the present settings."""
        wanted = {endpoint.pk: endpoint for endpoint in endpoints}
        for pk, lane in list(self._lanes.items()):
            if pk not in wanted or (_settings_of(wanted[pk]) != _settings_of(lane.endpoint)):
                await self._close_lane(self._lanes.pop(pk))
        for pk, endpoint in wanted.items():
            if pk not in self._lanes:
                self._lanes[pk] = _Lane(endpoint, self._transport(endpoint))

    def _transport(self, endpoint: Endpoint) -> Transport:
        if endpoint.kind == EndpointKind.HOOK:
            return outbox_hooks.HookTransport(endpoint, self._hooks[endpoint.name])
        return Webhook(endpoint)

    def _start(self, lane: _Lane, claim: Claim) -> None:
        task = asyncio.get_running_loop().create_task(_deliver(lane.transport, claim))
        lane.tasks[claim] = task
        task.add_done_callback(lambda task: self._ended(lane, claim, task))

    def _ended(self, lane: _Lane, claim: Claim, task: asyncio.Task[None]) -> None:
        del lane.tasks[claim]
        if not task.cancelled() and (error := task.exception()) is not None:
            _failing_deliveries.failed(error, endpoint=str(lane.endpoint))
            self._broken[claim] = f"The server failed: {type(error).__name__}."
        self._news.set()  # there is room for another

    async def _close(self) -> None:
        for lane in self._lanes.values():
            await self._close_lane(lane)
        self._lanes.clear()
        await astore.change(deliveries.release, list(self._broken))

    async def _close_lane(self, lane: _Lane) -> None:
        claims, tasks = list(lane.tasks), list(lane.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await astore.change(deliveries.release, claims)
        await lane.transport.close()


async def _deliver(transport: Transport, claim: Claim) -> None:
    """Deliver a conversation to an endpoint, one notification at a time, until one fails or none is due."""
    for _ in range(STEPS_MAX):
        step = await astore.call(deliveries.next_step, claim)
        if step is None:
            return
        try:
            await transport.deliver(step.notification)
        except DeliveryFailed as error:
            await astore.change(deliveries.failed, claim, str(error))
            return
        # Another process may have taken the claim, or a replay has set the position back.
        if not await astore.change(deliveries.delivered, claim, step):
            return
    await astore.change(deliveries.release, [claim])


def _served(hooks: Mapping[str, Any]) -> list[Endpoint]:
    return list(Endpoint.objects.served_with(hooks))


def _gathered(endpoints: Collection[Endpoint], watermark: Watermark) -> bool:
    """Gather for all endpoints; return whether one has more to read."""
    watermark.look()
    has_more = [gathering.gather(endpoint, watermark) for endpoint in endpoints]
    return any(has_more)


def _settings_of(endpoint: Endpoint) -> tuple[object, ...]:
    """Return what a transport is made from."""
    return (endpoint.base_url, endpoint.sealed.token, endpoint.timeout_s, endpoint.name)
