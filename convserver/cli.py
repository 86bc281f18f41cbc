"""The `convserver` command: serve, import, or any of Django's management commands."""

from __future__ import annotations

import argparse
import gc
import io
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import django
import psycopg
import uvicorn
from django.conf import settings
from django.core.management import (
    CommandError,
    call_command,
    execute_from_command_line,
    load_command_class,
)
from django.db import Error as DatabaseProblem
from django.db import connection
from django.utils.module_loading import import_string

from convserver import first_steps
from convserver.configuration import MESSAGE_MAX_BYTES, AuthMode, Configuration, ConfigurationError

SHUTDOWN_WAIT_S = 15
CONNECT_WAIT_S = 5
UNREAD_WAIT_S = 30.0
PING_S = 20.0
"""An idle socket is kept open: proxies see a ping this often, and the client answers it by itself."""
PONG_WAIT_S = 60.0
"""A pong comes behind all that a slow client still has to read."""

IMPORTS = {"openhands-v1": "import_openhands_v1"}
"""The management command of each format."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 for a wrong configuration."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    parser = argparse.ArgumentParser(
        prog="convserver", description="A durable conversation server for AI agents."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="bring the database up to date and serve")
    manage = commands.add_parser(
        "manage", help="run a management command: createsuperuser, create_token, …", add_help=False
    )
    manage.add_argument("rest", nargs=argparse.REMAINDER)
    bring = commands.add_parser("import", help="import conversations that another program keeps in files")
    formats = bring.add_subparsers(dest="format", required=True)
    for name in IMPORTS:
        formats.add_parser(name, add_help=False)
    chosen, others = parser.parse_known_args(arguments)
    if others and chosen.command != "import":
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    try:
        match chosen.command:
            case "serve":
                return serve()
            case "import":
                return import_conversations(chosen.format, others)
            case _:
                return manage_django(chosen.rest)
    except ConfigurationError as error:
        sys.stderr.write(f"convserver: {error}\n")
        return 2


def manage_django(arguments: Sequence[str]) -> int:
    """Run one of Django's management commands."""
    execute_from_command_line(["convserver manage", *arguments])
    return 0


def import_conversations(format: str, arguments: Sequence[str]) -> int:
    """Run the command that imports a format; it ends the process itself when it fails."""
    django.setup()
    with _naming_the_database():
        _reach_database()
    command = load_command_class("sessions_app", IMPORTS[format])
    command.run_from_argv(["convserver import", format, *arguments])
    return 0


def serve() -> int:
    """Migrate, check, serve until told to stop, and say how to begin once it listens."""
    configuration: Configuration = settings.CONFIGURATION
    gc.disable()  # all that is loaded stays: to look for garbage in it makes the start slower
    django.setup()
    with ExitStack() as until_the_end:
        return _serve_on(_bound_sockets(configuration, until_the_end), configuration)


def _serve_on(sockets: list[socket.socket], configuration: Configuration) -> int:
    _require_agent(configuration)
    _prepare_database()
    # Addresses may bring keys (V1 sockets), and both the access log and the line that accepts a
    # socket print whole addresses.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = _Server(
        configuration,
        uvicorn.Config(
            "convserver.asgi:application",
            workers=1,  # the loops live in this one process, whatever WEB_CONCURRENCY says
            ws="websockets-sansio",
            ws_max_size=MESSAGE_MAX_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_WAIT_S,
            ws_per_message_deflate=False,
            access_log=False,
            log_config=None,
            proxy_headers=configuration.auth is AuthMode.ACCOUNTS,
            forwarded_allow_ips=list(configuration.trusted_proxies),
            timeout_graceful_shutdown=SHUTDOWN_WAIT_S,
        ),
    )
    server.run(sockets=sockets)
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Says how to begin once it really listens."""

    def __init__(self, configuration: Configuration, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._configuration = configuration

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and to look for garbage in all but what was loaded until now."""
        gc.freeze()
        gc.enable()
        await super().startup(sockets)
        if self.started:
            port: int = self.servers[0].sockets[0].getsockname()[1]
            print(first_steps.text(self._configuration, port), flush=True)


def _bound_sockets(configuration: Configuration, until_the_end: ExitStack) -> list[socket.socket]:
    """Return sockets bound to HOST and PORT. Raise ConfigurationError if they cannot be had."""
    host, port = configuration.host, configuration.port
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [_bound_socket(family, address, until_the_end) for family, _, _, _, address in places]
    except OSError as error:
        raise ConfigurationError(
            f"HOST is {host!r} and PORT is {port}, but the server cannot listen there: {error.strerror}."
        ) from error


def _bound_socket(family: socket.AddressFamily, address: Any, until_the_end: ExitStack) -> socket.socket:
    bound = until_the_end.enter_context(socket.socket(family, socket.SOCK_STREAM))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The server's own close waits until the client has read what was sent before; one that
        # never reads would so be kept for ever. Connections inherit this.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_WAIT_S * 1000))
    bound.bind(address)
    return bound


def _require_agent(configuration: Configuration) -> None:
    """Raise ConfigurationError if the agent's class cannot be had."""
    try:
        import_string(configuration.agent)
    except ImportError as error:
        raise ConfigurationError(
            f"CONVSERVER_AGENT is {configuration.agent!r}, but it cannot be loaded: {error}."
        ) from error


def _prepare_database() -> None:
    """Reach the database, bring it up to date and check it. Raise ConfigurationError in one sentence."""
    try:
        with _naming_the_database():
            _reach_database()
            call_command("migrate", verbosity=0, interactive=False)
            call_command("check", databases=["default"], fail_level="ERROR", stdout=io.StringIO())
    except CommandError as error:
        raise ConfigurationError(f"The server cannot start: {' '.join(str(error).split())}") from error


@contextmanager
def _naming_the_database() -> Iterator[None]:
    """Raise ConfigurationError in one sentence for what is wrong with the database."""
    try:
        yield
    except DatabaseProblem as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigurationError(f"DATABASE_URL names a database that cannot be used: {reason}.") from error


def _reach_database() -> None:
    """Connect once without the pool, which would try for half a minute; SQLite's own directory is made."""
    data_dir = settings.CONFIGURATION.data_dir
    if connection.vendor == "sqlite" and Path(connection.settings_dict["NAME"]).parent == data_dir:
        with suppress(OSError):  # told in a sentence when the file is opened
            data_dir.mkdir(parents=True, exist_ok=True)
    if connection.vendor == "postgresql":
        parameters = {"connect_timeout": CONNECT_WAIT_S, **connection.get_connection_params()}
        with connection.wrap_database_errors:
            psycopg.connect(**parameters).close()
