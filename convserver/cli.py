"""The `convserver` command: serve, or any of Django's management commands."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

import django
import uvicorn
from django.core.management import call_command, execute_from_command_line

from convserver.configuration import AuthMode, Configuration, ConfigurationError

MESSAGE_MAX_BYTES = 16 * 1024 * 1024
SHUTDOWN_WAIT_S = 15


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
    chosen = parser.parse_args(arguments)
    try:
        return serve() if chosen.command == "serve" else manage_django(chosen.rest)
    except ConfigurationError as error:
        sys.stderr.write(f"convserver: {error}\n")
        return 2


def manage_django(arguments: Sequence[str]) -> int:
    """Run one of Django's management commands."""
    execute_from_command_line(["convserver manage", *arguments])
    return 0


def serve() -> int:
    """Migrate, check, say how to begin, and serve until told to stop."""
    from django.conf import settings

    configuration: Configuration = settings.CONFIGURATION
    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    call_command("check", databases=["default"], fail_level="ERROR")
    _say_how_to_begin(configuration)
    # Addresses may bring keys (V1 sockets), and both the access log and the line that accepts a
    # socket print whole addresses.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = uvicorn.Server(
        uvicorn.Config(
            "convserver.asgi:application",
            host=configuration.host,
            port=configuration.port,
            workers=1,  # the loops live in this one process, whatever WEB_CONCURRENCY says
            ws="websockets-sansio",
            ws_max_size=MESSAGE_MAX_BYTES,
            ws_per_message_deflate=False,
            access_log=False,
            log_config=None,
            proxy_headers=configuration.auth is AuthMode.ACCOUNTS,
            timeout_graceful_shutdown=SHUTDOWN_WAIT_S,
        )
    )
    server.run()
    return 0 if server.started else 1


def _say_how_to_begin(configuration: Configuration) -> None: ...
