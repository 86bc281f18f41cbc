"""The `convserver` command: serve, import, or any of Django's management commands."""

from __future__ import annotations

import argparse
import errno
import faulthandler
import gc
import io
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import django
import psycopg
import uvicorn
from django.conf import settings
from django.core.checks import Tags
from django.core.management import (
    CommandError,
    call_command,
    execute_from_command_line,
    load_command_class,
)
from django.db import Error as DatabaseProblem
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string

from conversations.engines import failures
from conversations.engines.postgresql import poolers
from conversations.engines.sqlite3 import checkpoints, files
from conversations.server_log import log_act
from convserver import __version__, beginnings, private_files, program, quickstart
from convserver.configuration import (
    BUILT_IN_MANAGERS,
    BUILT_IN_VALIDATORS,
    LOOPBACK_ADDRESSES,
    MESSAGE_MAX_BYTES,
    STANDALONE,
    AuthMode,
    Configuration,
    LogFormat,
)
from convserver.serving import log_format
from convserver.serving.connections import Connections, room
from convserver.serving.http_protocol import SILENT_S, BoundedHttp, BoundedWebSocket, State
from convserver.serving.server_lock import ServerLock
from convserver.variables import ConfigurationError
from convserver.variables.keys import SESSION_API_KEY_MIN_LENGTH
from sessions_app.capacity import heap
from sessions_app.identity.addresses import Networks
from sessions_app.live import open_streams

logger = logging.getLogger(__name__)

SHARED_SESSIONS = (
    "DATABASE_URL leads to a connection pooler in transaction mode, which loses the settings, locks and "
    "notifications of sessions: name PostgreSQL itself, or a pool in session mode."
)
MISSING_SHOWN = 5
"""Of the methods that a configured class lacks, at most this many are named."""

PORT_MAX = 65_535
SWITCH_INTERVAL_S = 0.001
"""A thread that computes lets others run this often.

A call takes the interpreter some thirty times, after each statement of the database and each step on the
event loop, and with Python's own 5 ms would wait for that long each time beside somebody else's work.
"""
SHUTDOWN_WAIT_S = 15
NAME_MAX = 63
"""Of the name of a session, PostgreSQL keeps this much."""
UNREAD_WAIT_S = 30.0
PING_S = 20.0
"""Pings keep an idle socket open through proxies; client libraries answer them by themselves."""
PONG_WAIT_S = 60.0
"""A slow client sends its pong only after reading everything that was sent before the ping."""

WORKER = "convserver.asgi:worker"
WORKER_MANAGER = "sessions_app.loops.cluster.managers.WorkerConversationManager"
TOKEN = "CONVSERVER_TOKEN"  # noqa: S105 - a name
"""The variable with the token of whoever asks over stdio: arguments can be seen by other users."""
CONCURRENCY = 50
"""A worker plays at most this many turns at a time, unless its command line says otherwise."""
CONCURRENCY_MAX = 10_000

MANAGEMENT = {
    "migrate": "create or upgrade the database, and restore missing guards",
    "check": "check the configuration; with --database default the database's guards, too",
    "createsuperuser": "create an account for an administrator",
    "changepassword": "set another password for an account",
    "create_token": "create an API token and print it once",
    "rotate_secrets": "encrypt all secrets with the newest SECRET_KEY",
    "rebuild_search": "rebuild the search index from the log",
    "clearsessions": "delete logins that have expired",
}
"""The management commands that operators need, by what they do."""
NEED_TABLES = MANAGEMENT.keys() - {"migrate", "check"}
"""Those of them that can do nothing, and may ask for much, before `migrate`."""
OWN_IMPORTS = {"openhands-v1": "import_openhands_v1"}
"""The management commands of formats with one of their own."""
IMPORTS = "import_transcripts"
"""The management command of all others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 for a wrong configuration."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    parser = argparse.ArgumentParser(
        prog=program.command(), description="A durable conversation server for AI agents."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="migrate the database, and start the server")
    work = commands.add_parser("worker", help="run agents for servers with CONVSERVER_MANAGER=clustered")
    work.add_argument(
        "--concurrency",
        type=_from_1_to(CONCURRENCY_MAX),
        default=CONCURRENCY,
        help="at most this many turns are played at a time (default: %(default)s)",
    )
    work.add_argument(
        "--probe-port",
        type=_from_1_to(PORT_MAX),
        help="answer /alive, /health, /ready and /metrics at HOST and this port (default: none)",
    )
    manage = commands.add_parser(
        "manage", help="run a management command: migrate, createsuperuser, create_token, …", add_help=False
    )
    manage.add_argument("rest", nargs=argparse.REMAINDER)
    out = commands.add_parser(
        "export", help="write all conversations of a user into a zip file", add_help=False
    )
    out.add_argument("rest", nargs=argparse.REMAINDER)
    save = commands.add_parser(
        "backup", help="write the whole store into a directory, while the server runs", add_help=False
    )
    save.add_argument("rest", nargs=argparse.REMAINDER)
    back = commands.add_parser("restore", help="load a backup into an empty store", add_help=False)
    back.add_argument("rest", nargs=argparse.REMAINDER)
    bring = commands.add_parser(
        "import",
        help="import conversations from another program's files",
        add_help=False,
    )
    bring.add_argument("rest", nargs=argparse.REMAINDER)
    verify = commands.add_parser("verify", help="say whether the store is whole", add_help=False)
    verify.add_argument("rest", nargs=argparse.REMAINDER)
    checkpoint = commands.add_parser(
        "checkpoint", help="write a signed checkpoint of all logs, for `verify --against`", add_help=False
    )
    checkpoint.add_argument("rest", nargs=argparse.REMAINDER)
    away = commands.add_parser("purge", help="remove deleted and old conversations for good", add_help=False)
    away.add_argument("rest", nargs=argparse.REMAINDER)
    person = commands.add_parser("delete-user", help="delete a person and all their data", add_help=False)
    person.add_argument("rest", nargs=argparse.REMAINDER)
    commands.add_parser(
        "mcp",
        help="answer a program that has started this and speaks the Model Context Protocol over stdio",
        description="Let a program search and read conversations: it starts this command, and speaks the "
        f"Model Context Protocol over stdin and stdout. With accounts, {TOKEN} is a token with the scope "
        "`read`.",
    )
    chosen, others = parser.parse_known_args(arguments)
    if others and chosen.command in ("serve", "worker", "mcp"):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    private_files.create_privately()
    # PostgreSQL shows it to operators for each session of this process, and of programs that it starts.
    name = f"convserver {chosen.command} {os.getpid()} {socket.gethostname()}"
    os.environ.setdefault("PGAPPNAME", name[:NAME_MAX])
    try:
        match chosen.command:
            case "serve":
                return serve()
            case "worker":
                return work_for_cluster(chosen.concurrency, chosen.probe_port)
            case "import":
                return import_conversations([*others, *chosen.rest])
            case "export":
                return export_conversations([*others, *chosen.rest])
            case "backup":
                return back_up([*others, *chosen.rest])
            case "restore":
                return restore([*others, *chosen.rest])
            case "verify" | "checkpoint":
                return run_command(chosen.command, chosen.command, [*others, *chosen.rest])
            case "purge":
                return run_command("purge", "purge_conversations", [*others, *chosen.rest])
            case "delete-user":
                return run_command("delete-user", "delete_user", [*others, *chosen.rest])
            case "mcp":
                return serve_mcp(os.environ.get(TOKEN, ""))
            case _:
                return manage_django([*others, *chosen.rest])
    except ConfigurationError as error:
        _say_why_not(str(error))
        return 2


def _say_why_not(sentence: str) -> None:
    """Write a sentence to standard error, as the log is written; the settings may be what is wrong."""
    is_json = os.environ.get("CONVSERVER_LOG_FORMAT") == LogFormat.JSON
    line = log_format.json_line(sentence, level="error") if is_json else f"convserver: {sentence}"
    sys.stderr.write(f"{line}\n")


def _management_help() -> str:
    """Return the commands for operators, and where all of Django's are listed."""
    name, width = program.command(), max(map(len, MANAGEMENT))
    lines = [f"  {each:{width}}  {what}" for each, what in MANAGEMENT.items()]
    return (
        f"usage: {name} manage COMMAND [options]\n\n"
        "Commands for operators:\n" + "\n".join(lines) + "\n\n"
        f"`{name} manage COMMAND --help` shows the options of one command, and\n"
        f"`{name} manage help --commands` lists all commands, including those of Django.\n"
    )


def manage_django(arguments: Sequence[str]) -> int:
    """Run one of Django's management commands."""
    _let_statements_take_their_time()
    _make_data_dir()
    _protect_files()
    try:
        if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["help"]:
            sys.stdout.write(_management_help())
            return 0
        if arguments[:1] == ["migrate"]:
            return _migrate_by_hand(arguments)
        if arguments[0] in NEED_TABLES and _lacks_tables():
            return _say_to_migrate()
        execute_from_command_line(["convserver manage", *arguments])
    except DatabaseProblem:
        if not _has_no_tables():
            raise
        return _say_to_migrate()
    return 0


def _lacks_tables() -> bool:
    django.setup()
    return _is_reached() and _has_no_tables()


def _say_to_migrate() -> int:
    name = connection.settings_dict["NAME"]
    sys.stderr.write(
        f"There is no database at {name} yet. Run this first: {program.command()} manage migrate\n"
    )
    return 1


def _migrate_by_hand(arguments: Sequence[str]) -> int:
    """Run the command, and keep which database it was, as `serve` does."""
    django.setup()
    is_new = _is_reached() and _has_no_tables()
    execute_from_command_line(["convserver manage", *arguments])
    if not _has_no_tables():  # as after `--plan`
        _record_database(is_new=is_new)
    return 0


def _record_database(*, is_new: bool) -> None:
    beginnings.record(beginnings.name_of(connection), settings.CONFIGURATION.data_dir, is_new=is_new)


def _is_reached() -> bool:
    """Say whether the database can be reached, without the pool, which would try for seconds."""
    try:
        _reach_database()
    except (ConfigurationError, DatabaseProblem):  # the command itself says what is wrong
        return False
    return True


def _has_no_tables() -> bool:
    """Say whether the database can be reached and was never migrated."""
    try:
        return "django_migrations" not in connection.introspection.table_names()
    except DatabaseProblem:
        return False


def _let_statements_take_their_time() -> None:
    """Lift the time limit of statements, which is meant for requests: a command may read a whole table."""
    options = settings.DATABASES["default"]["OPTIONS"]
    if "pool" in options:
        options["options"] += " -c statement_timeout=0 -c lock_timeout=0"


def export_conversations(arguments: Sequence[str]) -> int:
    """Run the command that exports; if it fails, it ends the process itself."""
    _let_statements_take_their_time()
    django.setup()
    with _naming_the_database():
        _reach_database()
    command = load_command_class("convserver", "export_conversations")
    command.run_from_argv(["convserver export", "", *arguments])
    return 0


def back_up(arguments: Sequence[str]) -> int:
    """Run the command that backs up; if it fails, it ends the process itself."""
    _clean_up_on_sigterm()
    _let_statements_take_their_time()
    django.setup()
    command = load_command_class("convserver", "backup")
    if not _asks_for_help(arguments):
        with _naming_the_database():
            _reach_database()
        _protect_files()
        if _has_no_tables():
            return _say_to_migrate()
    command.run_from_argv(["convserver backup", "", *arguments])
    return 0


def restore(arguments: Sequence[str]) -> int:
    """Run the command that restores; if it fails, it ends the process itself.

    It connects to no database first: on SQLite that would make the file.
    """
    _clean_up_on_sigterm()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--into")
    parsed, _ = parser.parse_known_args(arguments)
    if parsed.into:
        os.environ["DATABASE_URL"] = parsed.into
    _let_statements_take_their_time()
    django.setup()
    with _naming_the_database():
        load_command_class("convserver", "restore").run_from_argv(["convserver restore", "", *arguments])
    _protect_files()
    return 0


def _clean_up_on_sigterm() -> None:
    """End the command on SIGTERM as an error does: what it has written so far is removed."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)  # a second one must not stop the cleaning
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _asks_for_help(arguments: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(arguments)


def import_conversations(arguments: Sequence[str]) -> int:
    """Run the command that imports a format; if it fails, it ends the process itself."""
    _let_statements_take_their_time()
    django.setup()
    with _naming_the_database():
        _reach_database()
    _protect_files()
    shown = "convserver import"
    own = OWN_IMPORTS.get(arguments[0]) if arguments else None
    chosen = arguments if own else ["", *arguments]
    load_command_class("sessions_app", own or IMPORTS).run_from_argv([shown, *chosen])
    return 0


def run_command(name: str, module: str, arguments: Sequence[str]) -> int:
    """Run one of the commands that read the whole store; it ends the process itself unless all is well."""
    _let_statements_take_their_time()
    django.setup()
    with _naming_the_database():
        _reach_database()
        if _lacks_tables():
            _say_to_migrate()
            return 2
    _protect_files()
    load_command_class("sessions_app", module).run_from_argv([f"convserver {name}", "", *arguments])
    return 0


def serve_mcp(token: str) -> int:
    """Answer a program over stdin and stdout until the input ends. Raise ConfigurationError."""
    configuration: Configuration = settings.CONFIGURATION
    if not token and (configuration.auth is not AuthMode.LOCAL or configuration.session_api_key is not None):
        raise ConfigurationError(f"{TOKEN} is missing: set it to a token with the scope `read`.")
    django.setup()
    with _naming_the_database():
        if _lacks_tables():
            return _say_to_migrate()
    _protect_files()
    # Its library takes a second to import, which no other command has use for.
    answer: Callable[[str], None] = import_string("convserver.mcp.stdio.serve")
    answer(token)
    return 0


def serve() -> int:
    """Migrate and check the database, serve until a signal, and print first examples once it listens."""
    configuration: Configuration = settings.CONFIGURATION
    heap.bound()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()  # everything that is loaded stays: collecting garbage would only make the start slower
    django.setup()
    with ExitStack() as until_the_end:
        sockets = _bound_sockets(configuration, until_the_end)
        _require_classes(configuration)
        if (database := _sqlite_file()) is not None:
            _make_data_dir()  # the lock's file is in it
            _require_sole(until_the_end.enter_context(closing(ServerLock(database))), database)
        prepare_database()
        return _serve_on(sockets, configuration)


def _require_sole(lock: ServerLock, database: Path) -> None:
    """Raise ConfigurationError if another server, or a restore, uses the file.

    It is asked before `migrate`, which must not change tables below a server that runs.
    """
    if not lock.take():
        raise ConfigurationError(
            f"The server cannot start: another one, or a restore, uses {database}. Stop it, or set "
            "CONVSERVER_DATA_DIR or DATABASE_URL to a database of this server's own."
        )


def work_for_cluster(concurrency: int, probe_port: int | None) -> int:
    """Migrate and check the database, and run agents until a signal; answer probes if there is a port."""
    configuration: Configuration = settings.CONFIGURATION
    if not configuration.is_clustered:
        raise ConfigurationError(
            "A worker needs CONVSERVER_MANAGER=clustered. Without it, `serve` itself runs the agents."
        )
    heap.bound()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()
    django.setup()
    settings.CONVERSATION_MANAGER = WORKER_MANAGER
    with ExitStack() as until_the_end:
        places = []
        if probe_port is not None:
            places = _bound_sockets(replace(configuration, port=probe_port), until_the_end)
        _require_classes(configuration)
        prepare_database()
        import_string(WORKER_MANAGER).concurrency = concurrency
        return _serve_on(places, configuration, WORKER)


def _from_1_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isdecimal() and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return read


def _serve_on(
    sockets: list[socket.socket],
    configuration: Configuration,
    application: str = "convserver.asgi:application",
) -> int:
    _protect_files()
    _warn_of_short_key(configuration)
    # What kills the process leaves its name and the statement: SQLite maps a file that may become immutable.
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
            ws_per_message_deflate=False,
            access_log=False,
            log_config=None,
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
        """Start listening, and collect garbage from now on, except in what is already loaded."""
        gc.freeze()
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
        raise ConfigurationError(problem + _way_out(port, error)) from error


def _way_out(port: int, error: OSError) -> str:
    """Return what to do if the port is taken, after a space; otherwise nothing."""
    if error.errno != errno.EADDRINUSE:
        return ""
    return f" Choose another port: PORT={port + 1 if port < PORT_MAX else port - 1} make run."


def _bound_socket(family: socket.AddressFamily, address: Any, until_the_end: ExitStack) -> socket.socket:
    bound = until_the_end.enter_context(socket.socket(family, socket.SOCK_STREAM))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The server's own close waits until the client has read all sent data, so a client that
        # never reads would be kept for ever. Connections inherit this.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_WAIT_S * 1000))
    bound.bind(address)
    return bound


def _require_classes(configuration: Configuration) -> None:
    """Raise ConfigurationError if a class that the configuration names cannot be used."""
    _class_of("CONVSERVER_AGENT", configuration.agent)
    # By their paths: the models that they import need Django to be set up.
    _require_class("CONVSERVER_STORE", configuration.store, "conversations.store.ConversationStore")
    _require_class("CONVSERVER_VALIDATOR", configuration.validator, BUILT_IN_VALIDATORS[STANDALONE])
    _require_class(
        "CONVSERVER_MANAGER",
        configuration.manager,
        "sessions_app.loops.conversation_manager.ConversationManager",
    )


def _require_class(variable: str, path: str, base_path: str) -> None:
    """Raise ConfigurationError unless there is a complete subclass at this path."""
    found, base = _class_of(variable, path), import_string(base_path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigurationError(f"{variable} is {path!r}, but that is no subclass of {base.__name__}.")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigurationError(
            f"{variable} is {path!r}, but its class lacks {', '.join(missing[:MISSING_SHOWN])}."
        )


def _class_of(variable: str, path: str) -> Any:
    try:
        return import_string(path)
    except Exception as error:  # whatever a module of somebody else's raises
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{variable} is {path!r}, but it cannot be loaded: {reason}.") from error


def prepare_database() -> None:
    """Connect to the database, upgrade it and check it. Raise ConfigurationError with one sentence."""
    with _naming_the_database():
        _reach_database()
    try:
        is_new = _has_no_tables()
        _migrate()
        _record_database(is_new=is_new)
        checkpoints.begin_mark()
        # Only these depend on where it runs; the others would import every page and every route.
        call_command(
            "check", tags=[Tags.database], databases=["default"], fail_level="ERROR", stdout=io.StringIO()
        )
    except CommandError as error:
        raise ConfigurationError(f"The server cannot start: {' '.join(str(error).split())}") from error
    except DatabaseProblem as error:
        sentence = failures.sentence(error, connection)
        raise ConfigurationError(f"The server cannot start: {sentence}") from error


def _migrate() -> None:
    """Apply the migrations that are missing, and forget the models of the past that this has made."""
    applied: list[Any] = []

    def note(plan: list[Any], **_: Any) -> None:
        applied.extend(plan)

    post_migrate.connect(note)
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        post_migrate.disconnect(note)
    if applied:
        gc.collect()
        heap.trim()


@contextmanager
def _naming_the_database() -> Iterator[None]:
    """Raise ConfigurationError with one sentence for every failure of the database."""
    try:
        yield
    except DatabaseProblem as error:
        if failures.known(error, connection) == failures.FULL:
            raise ConfigurationError(f"The server cannot start: {failures.FULL}") from error
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigurationError(f"DATABASE_URL names a database that cannot be used: {reason}.") from error


def _make_data_dir() -> None:
    """Create the directory of SQLite's file if it is the data directory."""
    database, data_dir = _sqlite_file(), settings.CONFIGURATION.data_dir
    if database is not None and database.parent == data_dir:
        with suppress(OSError):  # opening the file reports it in a sentence
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)


def _protect_files() -> None:
    private_files.protect(settings.CONFIGURATION.data_dir, _sqlite_file())


def _sqlite_file() -> Path | None:
    database = settings.DATABASES["default"]
    return Path(database["NAME"]) if "sqlite" in database["ENGINE"] else None


def _reach_database() -> None:
    """Connect once without the pool, which would try again for seconds."""
    _make_data_dir()
    if connection.vendor == "sqlite":
        if not files.can_be_written(str(connection.settings_dict["NAME"])):
            raise ConfigurationError(f"The server cannot start: {files.READ_ONLY}")
        connection.ensure_connection()
    if connection.vendor == "postgresql":
        with connection.wrap_database_errors:
            if poolers.shares_sessions(lambda: psycopg.connect(**connection.get_connection_params())):
                raise ConfigurationError(SHARED_SESSIONS)
