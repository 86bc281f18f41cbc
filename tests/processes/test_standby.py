"""A standby without which commits are acknowledged is warned of, and a synchronous one is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from conversations.engines import durability
from faults.instances import Missing, PostgreSQL
from tests.conftest import on_postgresql
from tests.network import wait_until

pytestmark = [on_postgresql, pytest.mark.needs_engine]


@pytest.fixture
def followed() -> Iterator[PostgreSQL]:
    """A primary of this test's own that a standby follows."""
    with TemporaryDirectory() as directory, ExitStack() as running:
        place = Path(directory)
        place.chmod(0o755)  # PostgreSQL runs as somebody else
        try:
            primary = PostgreSQL(place / "primary")
        except Missing as missing:
            pytest.skip(str(missing))
        running.callback(primary.kill)
        primary.start()
        standby = PostgreSQL(place / "standby", primary=primary)
        running.callback(standby.kill)
        standby.start()
        yield primary


def warned(primary: PostgreSQL) -> list[str]:
    with psycopg.connect(primary.url) as session, session.cursor() as cursor:
        return durability.asynchronous_standby(cursor)


def test_a_standby_is_warned_of_until_commits_wait_for_it(followed: PostgreSQL) -> None:
    wait_until(lambda: bool(warned(followed)))  # a standby follows some time after it answers
    assert "may not be synchronous" in warned(followed)[0]
    followed.require_standby()
    wait_until(lambda: not warned(followed))
    followed.ask("ALTER SYSTEM SET synchronous_commit = 'local'")
    followed.ask("SELECT pg_reload_conf()")
    wait_until(lambda: bool(warned(followed)))
