"""The `convserver` command: serve, import, or any of Django's management commands."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Sequence

from convserver import private_files, program
from convserver.commands import management, serving
from convserver.configuration import LogFormat
from convserver.serving import log_format
from convserver.variables import ConfigurationError

CONCURRENCY = 50  # a worker plays at most this many turns at a time, unless its command line says otherwise
CONCURRENCY_MAX = 10_000
OTHERS = {
    "doctor": "say what is configured, what is missing, and how to get it",
    "manage": "run a management command: migrate, createsuperuser, create_token, …",
    "export": "write all conversations of a user into a zip file",
    "backup": "write the whole store into a directory, while the server runs",
    "restore": "load a backup into an empty store",
    "import": "import conversations from another program's files",
    "verify": "say whether the store is whole",
    "checkpoint": "write a signed checkpoint of all logs, for `verify --against`",
    "purge": "remove deleted and old conversations for good",
    "delete-user": "delete a person and all their data",
}
"""The commands that read their own arguments, by what they do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 for a wrong configuration."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    parser = argparse.ArgumentParser(
        prog=program.command(), description="A durable conversation server for AI agents."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="migrate the database, and start the server")
    serve.add_argument(
        "--workspace",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory of yours in which conversations may work, as in CONVSERVER_WORKSPACE_ROOTS",
    )
    work = commands.add_parser("worker", help="run agents for servers with CONVSERVER_MANAGER=clustered")
    work.add_argument(
        "--concurrency",
        type=_from_1_to(CONCURRENCY_MAX),
        default=CONCURRENCY,
        help="at most this many turns are played at a time (default: %(default)s)",
    )
    work.add_argument(
        "--probe-port",
        type=_from_1_to(serving.PORT_MAX),
        help="answer /alive, /health, /ready and /metrics at HOST and this port (default: none)",
    )
    for name, what in OTHERS.items():
        parser_of = commands.add_parser(name, help=what, add_help=False)
        parser_of.add_argument("rest", nargs=argparse.REMAINDER)
    commands.add_parser(
        "mcp",
        help="serve the Model Context Protocol over stdio to the program that starts this command",
        description="Let a program search and read conversations: it starts this command, and speaks the "
        f"Model Context Protocol over stdin and stdout. With accounts, {management.TOKEN} is a token with "
        "the scope `read`.",
    )
    # Options before the first argument of a command that reads its own are unknown to this parser.
    chosen, others = parser.parse_known_args(arguments)
    if others and chosen.command in ("serve", "worker", "mcp"):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    private_files.create_privately()  # before the settings are loaded, which may write the secret key
    # PostgreSQL shows it to operators for each session of this process, and of programs that it starts, and
    # keeps 63 characters of it.
    name = f"convserver {chosen.command} {os.getpid()} {socket.gethostname()}"
    os.environ.setdefault("PGAPPNAME", name[:63])
    try:
        return _run(chosen, [*others, *getattr(chosen, "rest", ())])
    except ConfigurationError as error:
        is_json = (
            os.environ.get("CONVSERVER_LOG_FORMAT") == LogFormat.JSON
        )  # the settings may be what is wrong
        line = log_format.json_line(str(error), level="error") if is_json else f"convserver: {error}"
        sys.stderr.write(f"{line}\n")
        return 2


def _run(chosen: argparse.Namespace, arguments: Sequence[str]) -> int:
    match chosen.command:
        case "serve":
            given = [os.environ.get("CONVSERVER_WORKSPACE_ROOTS"), *chosen.workspace]
            os.environ["CONVSERVER_WORKSPACE_ROOTS"] = ",".join(filter(None, given))
            return serving.serve()
        case "doctor":
            return management.look_for_problems(arguments)
        case "worker":
            return serving.work_for_cluster(chosen.concurrency, chosen.probe_port)
        case "import":
            return management.import_conversations(arguments)
        case "export":
            return management.export_conversations(arguments)
        case "backup":
            return management.back_up(arguments)
        case "restore":
            return management.restore(arguments)
        case "mcp":
            return management.serve_mcp(os.environ.get(management.TOKEN, ""))
        case "manage":
            return management.manage_django(arguments)
        case command:
            return management.run_on_store(command, arguments)


def _from_1_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isdecimal() and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return read
