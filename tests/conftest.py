"""People, rows, sockets and servers that tests start from."""

from __future__ import annotations

import gc
import os
import random
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import override_settings, setup_databases, teardown_databases
from psycopg.errors import DeadlockDetected

from conversations import live as hints
from conversations.models import Conversation, ConversationRef, Event, Purge
from conversations.store import ConversationStore, creation
from conversations.store import store as the_store
from convserver.api.direct import callers
from convserver.asgi import application
from convserver.configuration import AuthMode
from convserver.health import health
from convserver.passwords import login_throttle
from convserver.serving.static_files import StaticFilesMiddleware
from sessions_app import background
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity import key_holders, key_throttle
from sessions_app.identity.authentication import local_user
from sessions_app.loops.manager import close_manager
from sessions_app.operation import figures
from sessions_app.sandbox.base import SandboxName
from sessions_app.sockets.v0 import server as socketio_v0
from tests.support.people.clients import WAIT_S, Client, Server
from tests.support.people.web_browser import Browser
from tests.support.runner import migrated, thinning
from tests.support.runner.suite_run import NO_SECOND_TRY
from tests.support.servers.two_servers import TwoServers
from tests.support.wires.v0_socket import V0Client

QUICK, FULL = "quick", "full"
"""Profiles of hypothesis; the second one is that of `--full`."""

# A test fails for what the code does, never for how busy the machine is.
hypothesis.settings.register_profile(
    FULL, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(QUICK, hypothesis.settings.get_profile(FULL), max_examples=30)
hypothesis.settings.load_profile(QUICK)

on_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite locks the whole database, never one row"
)
once = pytest.mark.skipif(
    connection.vendor != "sqlite",
    reason="is about what people meet first, pages and printed words, whatever the database behind them",
)
on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="is about SQLite's own ways")

DATABASES = {"django_db_setup", "server", "site"}
"""Fixtures of which a test that can tell one engine from another has at least one."""

SERVING = {"server", "site", "two_servers"}
"""Fixtures that start servers on the test's database."""

KEPT_IDLE_S = 1.0
"""A connection that no test needs for so long is closed: all runs share those that PostgreSQL has."""
LEFT = pytest.StashKey[list[pytest.Item]]()
"""Tests that were chosen and are left to another run."""

VERSION_IN_NAME = re.compile(r"(?<=[\[-])V0(?=[\]-])")

MIGRATED = {"auth_permission", "django_content_type", "conversations_searchprogress"}
"""Tables of which the rows come with the migrations."""

TYPES_AT_ONCE = {"sessions_app.agents.demo.DEFAULT_WORD_S": 0.0}

PURGE_ALL = f"""
    INSERT INTO {Purge._meta.db_table} (conversation_id, requested_by, reason, started_at)
    SELECT id, 'tests', 'the test is over', CURRENT_TIMESTAMP FROM {Conversation._meta.db_table}
"""
EMPTYING_TRIES = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests of chance be run at length, and tests of a server on a cluster."""
    parser.addoption(
        "--full",
        action="store_true",
        help="run whole what takes long: slow tests, all of large tables, more by chance",
    )
    parser.addoption(
        "--two-servers",
        action="store_true",
        help="have two servers behind a proxy that alternates, and a worker, wherever a test starts a server",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples properties are tried on, before any module is read that says more of it."""
    hypothesis.settings.load_profile(FULL if config.getoption("--full") else QUICK)
    if connection.vendor == "postgresql":
        connection.settings_dict["OPTIONS"]["pool"]["max_idle"] = KEPT_IDLE_S


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin each test with the same umask: commands of ours that a test calls change it for the process."""
    # The account of the sandbox may read what a test writes that root runs.
    os.umask(0o022)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the run on SQLite what would be the same here, and to a run at length what is slow."""
    if config.getoption("--two-servers"):
        _take_elsewhere_too(items)
        return
    if not all(isinstance(item, pytest.Item) for item in items):
        return  # these are files, of which the tests will be seen later
    left = thinning.left_out(items, connection.vendor) if thinning.is_thinned(config) else set()
    if connection.vendor != "sqlite":
        taken = set() if config.getoption("--full") else {item.nodeid for item in items if item not in left}
        left |= {item for item in items if not _needs_engine(item) or _with_v1(item.nodeid) in taken}
    config.stash.setdefault(LEFT, []).extend(left)  # a run may collect one file after another
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


def _take_elsewhere_too(items: Sequence[pytest.Item]) -> None:
    """Let tests marked with `once` run on this engine as well: there is more to their server than that."""
    for item in items:
        for node in item.listchain():
            node.own_markers = [each for each in node.own_markers if each != once.mark]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Let the collector of garbage pass over what stays until the end: all modules and thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Call it no failure that all of what was chosen is left to another run."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(LEFT, []):
        session.exitstatus = pytest.ExitCode.OK


def _with_v1(name: str) -> str | None:
    """Return what a test of the store with a V0 conversation is called with a V1 one; else None.

    One of the two is enough on a second engine, where a version is a value of one column.
    """
    renamed = VERSION_IN_NAME.sub("V1", name)
    return renamed if name.startswith("tests/store/") and renamed != name else None


def _needs_engine(item: pytest.Item) -> bool:
    """Say whether the other engine could change what the test finds."""
    if any(item.iter_markers("needs_engine")):
        return True
    names = getattr(item, "fixturenames", ())
    return bool(DATABASES.intersection(names)) and not any(item.iter_markers("one_engine"))


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any) -> Iterator[None]:
    """Make the run's database, and remove it at the end."""
    with django_db_blocker.unblock():
        databases = setup_databases(verbosity=0, interactive=False)
        migrated.keep()
        yield
        _end_other_sessions()
        migrated.forget()
        teardown_databases(databases, verbosity=0)


def _end_other_sessions() -> None:
    """End what servers that were killed in the middle of a query have left: it would keep the database."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture(scope="session", autouse=True)
def fresh_figures() -> Iterator[None]:
    """Gather figures anew for each page and each reading: a test changes them and looks at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "KEPT_S", 0.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """Hash passwords the quick way: the real one is slow on purpose."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(scope="session", autouse=True)
def no_sandbox() -> Iterator[None]:
    """Let no agent run commands; a test that needs them says so."""
    off = replace(settings.CONFIGURATION, sandbox=SandboxName.OFF)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "CONFIGURATION", off)
        yield


@pytest.fixture(scope="session", autouse=True)
def static_files_listed_once() -> Iterator[None]:
    """Let Django's test clients share one list of the static files: each has middleware of its own."""
    listed: dict[str, Any] = {}
    from_finders = StaticFilesMiddleware.add_files_from_finders

    def add(middleware: StaticFilesMiddleware) -> None:
        if not listed:
            from_finders(middleware)
            listed.update(middleware.files)
        middleware.files.update(listed)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StaticFilesMiddleware, "add_files_from_finders", add)
        yield


@pytest.fixture
def database(django_db_setup: None, django_db_blocker: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """Allow the database, with real commits, and empty it afterwards by the guards' own way: a purge."""
    with django_db_blocker.unblock():
        yield
        empty_database()
        # To open a file anew takes longer than many a test; where servers start, they may replace it.
        if connection.vendor != "sqlite" or SERVING.intersection(request.fixturenames):
            connections.close_all()
        health.forget()  # its connection would keep the database from being removed


def empty_database() -> None:
    """Remove every row but what migrations put there; events under a purge, since nothing else can.

    Servers that a file shares go on writing beside it, and a deadlock with one ends either of the two.
    """
    for _ in range(EMPTYING_TRIES - 1):
        try:
            return _empty_database()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return _empty_database()


def _empty_database() -> None:
    """In one transaction and, where the engine can, one round trip, for it follows nearly every test."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in _emptying():
            cursor.execute(statement)


@cache
def _emptying() -> Sequence[str]:
    guarded = [Event._meta.db_table, Purge._meta.db_table]
    others = connection.introspection.django_table_names(only_existing=True, include_views=False)
    tables = [*guarded, *sorted(set(others) - {*guarded, *MIGRATED})]
    statements = [PURGE_ALL, *(f"DELETE FROM {table}" for table in tables)]
    return ["; ".join(statements)] if connection.vendor == "postgresql" else statements


@pytest.fixture
def alice(database: None) -> User:
    """The owner: the local user, where that mode is on."""
    return local_user()


@pytest.fixture
def bob(database: None) -> User:
    """A stranger."""
    return User.objects.create_user("bob", password="bob's password")


@pytest.fixture
def store(database: None) -> ConversationStore:
    """The store, acting for the server."""
    return the_store()


@pytest.fixture
def conversation(alice: User) -> ConversationRef:
    """An empty conversation of alice's."""
    return creation.create(alice, conversation_id="talk")


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change values of the configuration for one test, in which nobody has guessed any key yet."""
    monkeypatch.setattr(key_throttle, "key_throttle", key_throttle.KeyThrottle())

    def change(**values: Any) -> None:
        # Those who are known were let in by the configuration of before.
        monkeypatch.setattr(callers, "_callers", PerEventLoop(callers._made))
        monkeypatch.setattr(key_holders, "_key_holders", PerEventLoop(key_holders._made))
        monkeypatch.setattr(settings, "CONFIGURATION", replace(settings.CONFIGURATION, **values))

    return change


@pytest.fixture
def accounts(configured: Callable[..., None]) -> None:
    configured(auth=AuthMode.ACCOUNTS)


@pytest.fixture(autouse=True)
def undelayed_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests log in to the same few accounts, whatever passwords the tests before them have tried."""
    monkeypatch.setattr(login_throttle, "ACCOUNT_FREE", 1_000_000)


@pytest.fixture(autouse=True)
def quick_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo agent type without pauses."""
    monkeypatch.setattr(settings, "DEMO_AGENT_WORD_S", 0.0, raising=False)


@pytest.fixture
async def live(database: None) -> AsyncIterator[None]:
    """Allow sockets in this process; afterwards close what they opened."""
    yield
    await socketio_v0.close()
    await background.close()
    await close_manager()


Dial = Callable[..., Awaitable[Client]]


@pytest.fixture
def hints_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hints travel by the channel layer, as between processes, where they can be lost."""
    monkeypatch.setattr(hints, "receive_here", lambda *arguments: None)


Join = Callable[..., Awaitable[Client]]


@pytest.fixture
async def dial(live: None, alice: User) -> AsyncIterator[Dial]:
    """Open a socket at any address: alice's in local mode, nobody's in accounts mode without a token."""
    clients: list[Client] = []

    async def dialled(path: str, **options: Any) -> Client:
        client = Client(application, path, **options)
        clients.append(client)
        await client.connect()
        return client

    yield dialled
    for client in clients:
        await client.leave()


@pytest.fixture
def join(dial: Dial) -> Join:
    """Join a conversation over the native socket, as alice unless a token says otherwise."""

    async def joined(
        conversation: ConversationRef | str, *, token: str | None = None, **query: Any
    ) -> Client:
        name = conversation if isinstance(conversation, str) else conversation.public_id
        return await dial(f"/ws/conversations/{name}", token=token, query=query)

    return joined


Connect = Callable[..., Awaitable[V0Client]]


@pytest.fixture
async def connect(live: None, alice: User) -> AsyncIterator[Connect]:
    """Connect to a conversation over the V0 wire's socket; alice's in local mode."""
    clients: list[V0Client] = []

    async def connected(conversation_id: str | None, **query: Any) -> V0Client:
        client = V0Client(application, conversation_id=conversation_id, **query)
        clients.append(client)
        await client.connect()
        return client

    yield connected
    for client in clients:
        await client.leave()


@pytest.fixture(scope="module")
def two_servers(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    """Two servers and a worker for a whole file, with the demo agent: each test has an empty database."""
    servers = TwoServers(tmp_path_factory.mktemp("servers"))
    servers.start(constants=TYPES_AT_ONCE, CONVSERVER_AGENT="demo")
    yield servers
    servers.kill()


@pytest.fixture
async def rest(live: None, alice: User, request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    """A REST client without credentials: alice in local mode, nobody in accounts mode."""
    if request.config.getoption("--two-servers"):
        servers = request.getfixturevalue("two_servers")
        network = httpx.AsyncHTTPTransport()
        async with httpx.AsyncClient(transport=network, base_url=servers.url, timeout=WAIT_S) as client:
            yield client
        return
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
async def visitor(live: None, alice: User) -> AsyncIterator[Browser]:
    """A browser without a login, at an address that nobody else has."""
    visitor = Browser(str(IPv4Address(0x0A000000 + secrets.randbelow(2**24))))
    yield visitor
    await visitor.http.aclose()


@pytest.fixture
def server(database: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server in a process of its own, on this test's database; not started yet."""
    process = TwoServers(tmp_path) if request.config.getoption("--two-servers") else Server(tmp_path)
    yield process
    process.kill()


@pytest.fixture
def chance(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> random.Random:
    """Moments drawn at random; the seed is printed, and TEST_SEED=… draws the same ones again."""
    # A second try would draw other moments, pass, and hide what this one has found.
    request.node.add_marker(NO_SECOND_TRY)
    seed = int(os.environ.get("TEST_SEED") or secrets.randbelow(2**32))
    with capsys.disabled():
        print(f"\n{request.node.name}: TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def is_full(request: pytest.FixtureRequest) -> bool:
    """Whether tests that take long shall be run whole."""
    return bool(request.config.getoption("--full"))


@pytest.fixture
def mutation_seeds(chance: random.Random, is_full: bool) -> Sequence[int]:
    """Seeds of damaged files: others in every run, and more with `--full`."""
    return [chance.randrange(2**32) for _ in range(1000 if is_full else 120)]


@pytest.fixture
def limits(is_full: bool, chance: random.Random) -> Sequence[int]:
    """Lengths of pages, from 1 to 100: those at an edge and some by chance, or all with `--full`.

    On the second engine a few do: a length is the same number to both.
    """
    every = range(1, 101)
    if is_full:
        return every
    if connection.vendor == "postgresql":
        return [1, 7, 100]
    return sorted({1, 7, 33, 50, 51, 99, 100, *chance.sample(every[1:], 2)})
