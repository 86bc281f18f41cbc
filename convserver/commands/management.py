"""The commands that end by themselves."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

import django
from django.conf import settings
from django.core.management import execute_from_command_line, load_command_class
from django.db import Error as DatabaseProblem
from django.utils.module_loading import import_string

from convserver import program
from convserver.commands import database
from convserver.configuration import AuthMode, Configuration
from convserver.variables import ConfigurationError

# The variable with the token of an MCP client over stdio: other users of the machine see arguments.
TOKEN = "CONVSERVER_TOKEN"  # noqa: S105 - a name

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
# Those of them that can do nothing before `migrate`, although some ask the operator questions first.
NEED_TABLES = MANAGEMENT.keys() - {"migrate", "check"}
OWN_IMPORTS = {"openhands-v1": "import_openhands_v1"}
"""The management commands of formats with one of their own."""
IMPORTS = "import_transcripts"  # the management command of all others
ON_STORE = {
    "verify": "verify",
    "checkpoint": "checkpoint",
    "purge": "purge_conversations",
    "delete-user": "delete_user",
}
"""The management commands of those that read the whole store."""


def manage_django(arguments: Sequence[str]) -> int:
    """Run one of Django's management commands."""
    database.lift_time_limits()
    database.make_data_dir()
    database.protect_files()
    try:
        if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["help"]:
            sys.stdout.write(_management_help())
            return 0
        is_migration = arguments[0] == "migrate"
        is_new = (is_migration or arguments[0] in NEED_TABLES) and database.lacks_tables()
        if is_new and not is_migration:
            return database.say_to_migrate()
        execute_from_command_line(["convserver manage", *arguments])
        if is_migration and not database.has_no_tables():  # as after `--plan`
            database.record(is_new=is_new)
    except DatabaseProblem:
        if not database.has_no_tables():
            raise
        return database.say_to_migrate()
    return 0


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


def back_up(arguments: Sequence[str]) -> int:
    """Run the command that backs up; if it fails, it ends the process itself."""
    _clean_up_on_sigterm()
    database.lift_time_limits()
    django.setup()
    if {"-h", "--help"}.isdisjoint(arguments):
        with database.named_in_errors():
            database.reach()
        database.protect_files()
        if database.has_no_tables():
            return database.say_to_migrate()
    return _ran("backup", "convserver", "backup", arguments)


def restore(arguments: Sequence[str]) -> int:
    """Run the command that restores; if it fails, it ends the process itself."""
    # Without `reach`: on SQLite that would make the file, and the target must be empty.
    _clean_up_on_sigterm()
    # Read before Django is set up: the settings name one database for the whole process.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--into")
    parsed, _ = parser.parse_known_args(arguments)
    if parsed.into:
        os.environ["DATABASE_URL"] = parsed.into
    database.lift_time_limits()
    django.setup()
    with database.named_in_errors():
        _ran("restore", "convserver", "restore", arguments)
    database.protect_files()
    return 0


def _clean_up_on_sigterm() -> None:
    """End the command on SIGTERM as an error does: what it has written so far is removed."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)  # a second one must not stop the cleaning
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def import_conversations(arguments: Sequence[str]) -> int:
    """Run the command that imports a format; if it fails, it ends the process itself."""
    own = OWN_IMPORTS.get(arguments[0]) if arguments else None
    _prepare()
    if own:
        return _ran("import", "sessions_app", own, arguments[1:], part=arguments[0])
    return _ran("import", "sessions_app", IMPORTS, arguments)


def export_conversations(arguments: Sequence[str]) -> int:
    """Run the command that exports; if it fails, it ends the process itself."""
    _prepare()
    return _ran("export", "convserver", "export_conversations", arguments)


def look_for_problems(arguments: Sequence[str]) -> int:
    """Run the command that looks at the installation; it ends the process itself unless all is well."""
    django.setup()
    return _ran("doctor", "convserver", "doctor", arguments)


def run_on_store(name: str, arguments: Sequence[str]) -> int:
    """Run one of the commands that read the whole store; it ends the process itself unless all is well."""
    _prepare()
    if database.has_no_tables():
        database.say_to_migrate()
        return 2
    return _ran(name, "sessions_app", ON_STORE[name], arguments)


def _ran(name: str, app: str, command: str, arguments: Sequence[str], *, part: str = "") -> int:
    """Run a management command, called `convserver NAME PART` here; if it fails, it ends the process."""
    load_command_class(app, command).run_from_argv([f"convserver {name}", part, *arguments])
    return 0


def _prepare() -> None:
    database.lift_time_limits()
    django.setup()
    with database.named_in_errors():
        database.reach()
    database.protect_files()


def serve_mcp(token: str) -> int:
    """Answer a program over stdin and stdout until the input ends. Raise ConfigurationError."""
    configuration: Configuration = settings.CONFIGURATION
    if not token and (configuration.auth is not AuthMode.LOCAL or configuration.session_api_key is not None):
        raise ConfigurationError(f"{TOKEN} is missing: set it to a token with the scope `read`.")
    if database.lacks_tables():
        return database.say_to_migrate()
    database.protect_files()
    # Its library takes a second to import, which no other command has use for.
    answer: Callable[[str], None] = import_string("convserver.mcp.stdio.serve")
    answer(token)
    return 0
