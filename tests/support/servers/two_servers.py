"""A cluster in place of one server: two servers behind a proxy that alternates, and a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import Signals

from tests.browser.site import Site
from tests.support.people.clients import Server, Worker
from tests.support.servers.alternating_proxy import AlternatingProxy


class TwoServers(Site):
    """Looks like one server to those who use it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._servers = [Server(_made(directory / name)) for name in ("first", "second")]
        self._worker = Worker(_made(directory / "worker"))
        self._proxy: AlternatingProxy | None = None
        self.log = self._servers[0].log

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended by a test."""
        return self._proxy is not None

    @property
    def pid(self) -> int:
        """The first of the processes that serve."""
        return self._servers[0].pid

    def start(self, *, constants: Mapping[str, float] | None = None, **environment: str) -> None:
        """Start all of them, and return once each answers."""
        environment["CONVSERVER_MANAGER"] = "clustered"
        self._each(lambda server: server.start(constants=constants, **environment))
        self._proxy = AlternatingProxy(self.port, [server.port for server in self._servers])

    def kill(self) -> None:
        self._end(Server.kill)

    def stop(self) -> None:
        """Ask all to end, and wait until they have."""
        self._end(Server.stop)

    def signal(self, number: Signals) -> None:
        """Send all a signal and do not wait."""
        self._each(lambda server: server.signal(number))

    def _end(self, end: Callable[[Server], None]) -> None:
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        self._each(end)

    def _each(self, act: Callable[[Server], None]) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(act, [*self._servers, self._worker]))


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
