"""What commands have in common: the owner, the time zone, who runs it, a database that is up to date."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from getpass import getuser
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from sessions_app.identity.authentication import LOCAL_USERNAME, local_user


def add_owner(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--owner", metavar="USERNAME", help="the owner of the conversations; required in accounts mode"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be imported, without importing it"
    )


def add_zone(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--timezone",
        type=zone,
        default=ZoneInfo("UTC"),
        dest="zone",
        help="the time zone of times without one, such as Europe/Berlin (default: UTC)",
    )


def zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. Raise ArgumentTypeError."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise ArgumentTypeError(f"{name!r} is not a time zone; write it like Europe/Berlin") from error


def prepare_database(*, dry_run: bool) -> None:
    """Upgrade the database. Raise CommandError if an upgrade is needed in a dry run."""
    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return
    if dry_run:
        raise CommandError("The database is not up to date. Run `convserver manage migrate` first.")
    call_command("migrate", verbosity=0, interactive=False)


def owner(name: str | None, *, dry_run: bool, may_be_closed: bool = False) -> User:
    """Return the owner of the conversations, with `may_be_closed` also one of a closed account.

    Raise CommandError.
    """
    if name is None and settings.CONFIGURATION.auth != "local":
        raise CommandError("Accounts mode needs the owner of the conversations: --owner USERNAME.")
    if name is None:
        if not dry_run:
            return local_user()
        return User.objects.filter(username=LOCAL_USERNAME).first() or User(username=LOCAL_USERNAME)
    user = User.objects.filter(username=name).first()
    if user is None or not (user.is_active or may_be_closed):
        raise CommandError(f"There is no active user {name!r}. Create one with createsuperuser.")
    return user


def requester() -> str:
    """Return the name of the operating system's user who runs the command, as far as it is known."""
    try:  # a container may run under a number without a name
        return f"command, as {getuser()}"
    except (KeyError, OSError):
        return "command"
