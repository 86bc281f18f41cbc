"""The proxy of one sandbox, in a thread of its own: it ends with the sandbox, with all its connections."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from conversations.outages import Outage
from sessions_app.sandbox_network.proxied import serve

_failing = Outage(__name__, "The proxy of a sandbox failed")


class GateSlots:
    """The connections of all sandboxes of this process, each of which takes two descriptors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, own: int) -> bool:
        """Take a slot for a sandbox that has `own` of them, if there is one for it.

        A sandbox has fewer than are free, so that there are always some for others.
        """
        most, part = 128, 16
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            most = min(most, soft // part)
        with self._lock:
            if own >= most - self._taken:
                return False
            self._taken += 1
            return True

    def give_back(self) -> None:
        """Give back a slot."""
        with self._lock:
            self._taken -= 1


_slots = GateSlots()


class Gate:
    """Lets the programs of a sandbox reach public servers, from a listening socket that it closes."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        # Not the loop of the server: what a sandbox sends and receives must not delay others there.
        self._loop = asyncio.SelectorEventLoop()
        names = 4  # that are looked up at a time
        self._loop.set_default_executor(ThreadPoolExecutor(names, "sandbox-names"))
        self._accepting = self._loop.create_task(self._accept())
        self._thread = threading.Thread(target=self._run, name="sandbox-network", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the listening socket and all connections, and wait until they are closed."""
        within_s = 10.0
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._accepting.cancel)
        self._thread.join(within_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._accepting)
        except Exception as error:
            _failing.failed(error)
        finally:
            self._listener.close()
            # It does not wait for look-ups of names that are under way.
            self._loop.close()

    async def _accept(self) -> None:
        again_s = 0.05
        self._listener.setblocking(False)
        serving: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    client, _ = await self._loop.sock_accept(self._listener)
                except OSError:  # no descriptor is left, or the client has gone
                    await asyncio.sleep(again_s)
                    continue
                try:
                    # Further clients wait in the queue of the listening socket. A slot that becomes free may
                    # be another thread's.
                    while not _slots.take(len(serving)):  # noqa: ASYNC110
                        await asyncio.sleep(again_s)
                except BaseException:
                    client.close()
                    raise
                serving.add(task := self._loop.create_task(serve(client)))
                task.add_done_callback(partial(_end, serving, client))
        finally:
            for each in serving:
                each.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


def _end(serving: set[asyncio.Task[None]], client: socket.socket, task: asyncio.Task[None]) -> None:
    """Give back what a connection took, also if it never began."""
    serving.discard(task)
    client.close()
    _slots.give_back()
    if not task.cancelled() and (error := task.exception()) is not None:
        _failing.failed(error)
