"""The commands `serve` and `worker`: a process that runs until a signal."""

from __future__ import annotations

import errno
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from types import FrameType
from typing import Any

import django
import uvicorn
from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from conversations.server_log import log_act
from convserver import __version__, quickstart
from convserver.commands import configured_classes, database
from convserver.configuration import (
    BUILT_IN_MANAGERS,
    LOOPBACK_ADDRESSES,
    MESSAGE_MAX_BYTES,
    AuthMode,
    Configuration,
    LogFormat,
)
from convserver.serving.connections import Connections, room
from convserver.serving.http_protocol import SILENT_S, BoundedHttp, State
from convserver.serving.server_lock import ServerLock
from convserver.serving.websocket_protocol import BoundedWebSocket
from convserver.variables import ConfigurationError
from convserver.variables.keys import SESSION_API_KEY_MIN_LENGTH
from sessions_app.capacity import heap
from sessions_app.identity.addresses import Networks
from sessions_app.live import open_streams

logger = logging.getLogger(__name__)

PORT_MAX = 65_535
SHUTDOWN_WAIT_S = 15
UNREAD_WAIT_S = 30.0
# Pings keep an idle socket open through proxies; client libraries answer them by themselves.
PING_S = 20.0
# A slow client sends its pong only after reading everything that was sent before the ping.
PONG_WAIT_S = 60.0

WORKER = "convserver.asgi:worker"
WORKER_MANAGER = "sessions_app.loops.cluster.managers.WorkerConversationManager"


def serve() -> int:
    """Migrate and check the database, serve until a signal, and print first examples once it listens."""
    configuration = _begun()
    with ExitStack() as until_the_end:
        # First of all, while nothing is changed: a server whose port is taken must not migrate.
        sockets = _bound_sockets(configuration, until_the_end)
        configured_classes.require(configuration)
        if (path := database.sqlite_file()) is not None:
            database.make_data_dir()  # the lock's file is in it
            lock = until_the_end.enter_context(closing(ServerLock(path)))
            # Before `migrate`, which must not change tables below a server that runs.
            if not lock.take():
                raise ConfigurationError(
                    f"The server cannot start: another one, or a restore, uses {path}. Stop it, or set "
                    "CONVSERVER_DATA_DIR or DATABASE_URL to a database of this server's own."
                )
        database.prepare()
        return _serve_on(sockets, configuration)


def work_for_cluster(concurrency: int, probe_port: int | None) -> int:
    """Migrate and check the database, and run agents until a signal; answer probes if there is a port."""
    if not settings.CONFIGURATION.is_clustered:
        raise ConfigurationError(
            "A worker needs CONVSERVER_MANAGER=clustered. Without it, `serve` itself runs the agents."
        )
    configuration = _begun()
    settings.CONVERSATION_MANAGER = WORKER_MANAGER
    with ExitStack() as until_the_end:
        sockets = []
        if probe_port is not None:
            sockets = _bound_sockets(replace(configuration, port=probe_port), until_the_end)
        configured_classes.require(configuration)
        database.prepare()
        import_string(WORKER_MANAGER).concurrency = concurrency
        return _serve_on(sockets, configuration, WORKER)


def _begun() -> Configuration:
    """Set the interpreter and Django up, and return the configuration."""
    heap.bound()
    # A thread that computes lets others run this often. A request takes the interpreter some thirty times,
    # after each statement of the database and each step on the event loop: with Python's own 5 ms it would
    # wait for that long each time beside the work of another thread.
    switch_interval_s = 0.001
    sys.setswitchinterval(switch_interval_s)
    gc.disable()  # everything that is loaded stays: collecting garbage would only make the start slower
    django.setup()
    configuration: Configuration = settings.CONFIGURATION
    return configuration


def _serve_on(
    sockets: list[socket.socket],
    configuration: Configuration,
    application: str = "convserver.asgi:application",
) -> int:
    database.protect_files()
    _warn_of_short_key(configuration)
    # A crash prints the signal and the Python statement: SQLite maps a file that may become immutable.
    faulthandler.enable(all_threads=False)
    server = _Server(
        configuration,
        uvicorn.Config(
            application,
            lifespan="on",
            workers=1,  # the loops live in this one process, whatever WEB_CONCURRENCY says
            http=BoundedHttp,
            ws=BoundedWebSocket,
            ws_max_size=MESSAGE_MAX_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_WAIT_S,
            ws_per_message_deflate=False,  # each socket would keep a window of memory for it
            access_log=False,  # addresses may contain keys; refusals have lines of their own
            log_config=None,
            # Any client may send these headers: they count only from the proxies that the operator names.
            proxy_headers=configuration.auth is AuthMode.ACCOUNTS and bool(configuration.trusted_proxies),
            forwarded_allow_ips=list(configuration.trusted_proxies),
            timeout_keep_alive=int(SILENT_S),
            timeout_graceful_shutdown=SHUTDOWN_WAIT_S,
        ),
    )
    with suppress(KeyboardInterrupt):  # raised again by uvicorn once all has ended
        server.run(sockets=sockets)
    return 0 if server.started else 1


def _warn_of_short_key(configuration: Configuration) -> None:
    key = configuration.session_api_key
    if key is not None and len(key) < SESSION_API_KEY_MIN_LENGTH:
        logger.warning(
            "SESSION_API_KEY is short enough to be guessed: use at least %d random characters.",
            SESSION_API_KEY_MIN_LENGTH,
        )


class _Server(uvicorn.Server):
    """Prints first examples once it really listens."""

    def __init__(self, configuration: Configuration, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._configuration = configuration
        self.server_state = State(
            Connections(
                limit=room(configuration.max_connections),
                per_address=configuration.max_connections_per_address,
                exempt=Networks(*LOOPBACK_ADDRESSES, *configuration.trusted_proxies),
            )
        )
        self._signal: str | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and collect garbage from now on."""
        gc.freeze()  # what is loaded stays: no collection looks through it again
        gc.enable()
        await super().startup(sockets)
        if self.started and self._is_worker:
            log_act("Worker started", **_facts_of(self._configuration, None))
            self._print("The worker is running. Press Ctrl+C to stop.")
        elif self.started:
            port: int = self.servers[0].sockets[0].getsockname()[1]
            log_act("Server started", **_facts_of(self._configuration, port))
            self._print(quickstart.text(self._configuration, port))

    def _print(self, text: str) -> None:
        """Print what is for people, unless a program reads every line."""
        if self._configuration.log_format is not LogFormat.JSON:
            print(text, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, and remember the signal for the log."""
        self._signal = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end the requests under way, and log the signal."""
        open_streams.end_all()  # else the end would wait for answers that never end by themselves
        await super().shutdown(sockets)
        log_act(f"{'Worker' if self._is_worker else 'Server'} stopped", signal=self._signal)
        if self.lifespan.should_exit:
            logging.shutdown()
            os._exit(1)  # threads wait for the database, and the interpreter would wait for them

    @property
    def _is_worker(self) -> bool:
        return self.config.app == WORKER


def _facts_of(configuration: Configuration, port: int | None) -> dict[str, object]:
    """Return the facts that the log has about a running server; none is secret."""
    names = {path: name for name, path in BUILT_IN_MANAGERS.items()}
    return {
        "version": __version__,
        "host": configuration.host,
        "port": port,
        "database": connection.vendor,
        "data_dir": str(configuration.data_dir),
        "mode": str(configuration.auth),
        "manager": names.get(configuration.manager, configuration.manager),
    }


def _bound_sockets(configuration: Configuration, until_the_end: ExitStack) -> list[socket.socket]:
    """Return sockets bound to HOST and PORT. Raise ConfigurationError if that fails."""
    host, port = configuration.host, configuration.port
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [_bound_socket(family, address, until_the_end) for family, _, _, _, address in places]
    except OSError as error:
        problem = (
            f"HOST is {host!r} and PORT is {port}, but the server cannot listen there: {error.strerror}."
        )
        if error.errno == errno.EADDRINUSE:
            problem += f" Choose another port: PORT={port + 1 if port < PORT_MAX else port - 1} make run."
        raise ConfigurationError(problem) from error


def _bound_socket(family: socket.AddressFamily, address: Any, until_the_end: ExitStack) -> socket.socket:
    bound = until_the_end.enter_context(socket.socket(family, socket.SOCK_STREAM))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a restart waits a minute for the port
    if family == socket.AF_INET6:  # HOST may name both families, each with a socket of its own
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The server's own close waits until the client has read all sent data, so a client that
        # never reads would be kept without limit. Connections inherit this.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_WAIT_S * 1000))
    bound.bind(address)
    return bound
