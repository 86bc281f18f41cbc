"""Whatever happens to a server, its database and its clients, in whatever order: the history is right."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any
from uuid import uuid4

import httpx
import hypothesis
import pytest
from django.db import connection, transaction
from hypothesis import Phase, settings, stateful
from hypothesis import strategies as st

from faults.checker.history import Did, Record
from faults.checker.judge import checked
from faults.clock import Clock
from faults.suite import stored
from faults.suite.clients.stage import REFUSALS, UNKNOWN
from tests.support.people.clients import HTTP, Server, SocketClosed
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = pytest.mark.no_second_try

RUNS, FULL_RUNS = {"sqlite": 5, "postgresql": 2}, 500
STEPS, FULL_STEPS = 8, 20
TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A') AND NOT tgisinternal",
}
HOUR_S = 3600.0
JSON = {"content-type": "application/json"}
keys = st.sampled_from([f"k{number}" for number in range(12)])
several = st.lists(keys, min_size=1, max_size=4, unique=True)
moments = st.integers(min_value=0, max_value=150).map(lambda number: number / 1000)
"""How long something is broken, or in how much time something breaks, in seconds."""


class ServerUnderClock(Server):
    """A server whose time of day is set from outside."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.clock = Clock(directory / "clock")

    @property
    def command(self) -> Sequence[str]:  # type: ignore[override]
        """Run the server as the fault suite does."""
        return ("faults.entry", "--clock", str(self.clock.path), "--", "convserver", "serve")


class Machine(stateful.RuleBasedStateMachine):
    """One conversation of a server that outlives the runs, two readers, and what can happen to them."""

    server: ServerUnderClock

    def __init__(self) -> None:
        super().__init__()
        self.run = f"run-{uuid4().hex}"
        self.url = f"{self.server.url}/api/native/conversations"
        self.history: list[Record] = []
        self.readers = {"one": -1, "other": -1}
        # The run before may have left the server with sessions that are dead.
        wait_until(lambda: HTTP.post(self.url, json={"id": self.run}).status_code in (201, 409))
        for reader in self.readers:
            self._add(Did.JOIN, reader)

    def _add(self, did: Did, key: str, seq: int = -1, text: str = "", *, talk: str | None = None) -> None:
        self.history.append(Record(did, self.run if talk is None else talk, key, seq, text))

    # What clients do

    def _send(self, key: str) -> None:
        """Send an event by REST, once, and note the answer; called by several threads."""
        self._add(Did.INVOKE, key)
        try:
            answer = HTTP.post(f"{self.url}/{self.run}/events", content=_frame(self._id(key)), headers=JSON)
        except httpx.TransportError:
            self._add(Did.UNKNOWN, key)
        else:
            self._take(key, answer.json())

    def _id(self, key: str) -> str:
        return f"{self.run}-{key}"

    def _take(self, key: str, answer: dict[str, Any]) -> None:
        if answer.get("type") == "ack":
            self._add(Did.ACK, key, answer["seq"])
        elif answer.get("code") in REFUSALS:
            self._add(Did.REFUSED, key)
        elif answer.get("code") == UNKNOWN:
            self._add(Did.UNKNOWN, key)
        else:
            self._add(Did.UNEXPECTED, key, text=str(answer)[:200])

    @contextmanager
    def _while_sending(self, sent: Sequence[str]) -> Iterator[None]:
        """Let clients send all of these at once; leave when each has its answer, or has none."""
        with ThreadPoolExecutor(len(sent)) as clients:
            tries = [clients.submit(self._send, key) for key in sent]
            yield
        for each in tries:
            each.result()

    @stateful.rule(sent=several)
    def send(self, sent: list[str]) -> None:
        """Send events by REST, for the first time or again."""
        with self._while_sending(sent):
            pass

    @stateful.rule(sent=several, waits=st.booleans())
    def send_by_socket(self, sent: list[str], waits: bool) -> None:
        """Read all by a new socket, send events by it, and leave with the answers or without them."""
        reader = uuid4().hex
        self._add(Did.JOIN, reader)
        pending: set[str] = set()
        try:
            with NetworkClient(self.server, self.run) as client:
                client.until("replay_complete")
                for key in sent:
                    self._add(Did.INVOKE, key)
                    pending.add(key)
                    client.send(_frame(self._id(key)))
                while waits and pending:
                    frame = client.receive()
                    key = str(frame.get("id")).removeprefix(f"{self.run}-")
                    if frame["type"] in ("ack", "error") and key in pending:
                        pending.remove(key)
                        self._take(key, frame)
                shown = [frame for frame in client.frames if frame["type"] == "event"]
        except (SocketClosed, TimeoutError):
            shown = []
        for frame in shown:
            self._add(Did.READ, reader, frame["seq"], self._key(frame))
        for key in pending:
            self._add(Did.UNKNOWN, key)

    def _key(self, frame: dict[str, Any]) -> str:
        return str(frame["id"]).removeprefix(f"{self.run}-")

    @stateful.rule(reader=st.sampled_from(["one", "other"]))
    def read(self, reader: str) -> None:
        """Read by REST what follows."""
        after = {"after": str(self.readers[reader]), "limit": "5"}
        answer = HTTP.get(f"{self.url}/{self.run}/events", params=after)
        for frame in _found(answer).get("events", ()):
            self._add(Did.READ, reader, frame["seq"], self._key(frame))
            self.readers[reader] = frame["seq"]

    @stateful.rule()
    def look(self) -> None:
        """Ask how long the log is."""
        question = uuid4().hex
        self._add(Did.LOOK, question)
        if found := _found(HTTP.get(f"{self.url}/{self.run}/events", params={"limit": "1"})):
            self._add(Did.LOOKED, question, found["last_seq"])

    @stateful.rule(number=st.integers(min_value=0, max_value=3))
    def create(self, number: int) -> None:
        """Create a conversation under a key, for the first time or again."""
        key = f"made-{self.run}-{number}"
        headers = {"Idempotency-Key": f'"{key}"'}
        self._add(Did.CREATE, key, talk="")
        if found := _found(HTTP.post(self.url, json={"title": key}, headers=headers)):
            self._add(Did.CREATED, key, talk=found["id"])

    # What breaks

    @stateful.rule(sent=several, within_s=moments)
    def kill(self, sent: list[str], within_s: float) -> None:
        """End the server at once while clients send, and start it again."""
        with self._while_sending(sent):
            time.sleep(within_s)
            self.server.kill()
        self.server.start()

    @stateful.rule(sent=several)
    def stop(self, sent: list[str]) -> None:
        """Ask the server to end while clients send, and start it again."""
        with self._while_sending(sent):
            self.server.stop()
        self.server.start()

    @stateful.rule(sent=several, for_s=moments)
    def freeze(self, sent: list[str], for_s: float) -> None:
        """Stop the server where it is, and let it go on."""
        self.server.signal(SIGSTOP)
        with self._while_sending(sent):
            time.sleep(for_s)
            self.server.signal(SIGCONT)

    @stateful.rule(sent=several, for_s=moments)
    def lock(self, sent: list[str], for_s: float) -> None:
        """Let another program hold what an append needs."""
        with self._while_sending(sent), _locked():
            time.sleep(for_s)

    @stateful.precondition(lambda self: connection.vendor == "postgresql")
    @stateful.rule(sent=several, within_s=moments)
    def terminate(self, sent: list[str], within_s: float) -> None:
        """Let an administrator end all sessions of the server."""
        with self._while_sending(sent), connection.cursor() as cursor:
            time.sleep(within_s)
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    # By less than a day, for which a key is kept: a create that is repeated later creates again.
    @stateful.rule(sent=several, offset_s=st.sampled_from([-HOUR_S, 0.0, 12 * HOUR_S]))
    def move_clock(self, sent: list[str], offset_s: float) -> None:
        """Let the server's time of day jump."""
        self.server.clock.offset_s = offset_s
        self.send(sent)

    def teardown(self) -> None:
        """Compare all that was answered with what is stored."""
        store = self._store()
        held = [each._replace(key=each.key.removeprefix(f"{self.run}-")) for each in stored.records(store)]
        assert checked(self.history, held).violations == []
        assert list(stored.faults_in(store)) == []

    def _store(self) -> stored.Store:
        with connection.cursor() as cursor:

            def ask(statement: str, *values: Any) -> list[tuple[Any, ...]]:
                cursor.execute(statement.format(*["%s"] * len(values)), values or None)
                return list(cursor.fetchall())

            return stored.read(
                lambda questions: [ask(*question) for question in questions],
                TRIGGERS[connection.vendor],
                talks=self.run,
                creations=f"made-{self.run}-",
            )


def _found(answer: httpx.Response) -> dict[str, Any]:
    """Return a body; nothing if the database was away, which is said with 503."""
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return {}
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def _frame(event_id: str) -> str:
    """Return the same bytes each time, by whichever way they are sent: others are a conflict."""
    note = {"id": event_id, "action": "note", "args": {"content": "A note."}}
    return json.dumps({"type": "event", "id": event_id, "event": note})


@contextmanager
def _locked() -> Iterator[None]:
    if connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE conversations_event IN EXCLUSIVE MODE")
            yield
        return
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, isolation_level=None, timeout=10.0)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.timeout(7200)
def test_every_history_of_a_server_that_is_broken_and_used_is_right(
    database: None, tmp_path: Path, chance: random.Random, is_full: bool
) -> None:
    Machine.server = ServerUnderClock(tmp_path)
    hypothesis.seed(chance.randrange(2**32))(Machine)
    runs = settings(
        max_examples=FULL_RUNS if is_full else RUNS[connection.vendor],
        stateful_step_count=FULL_STEPS if is_full else STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # what depends on moments cannot be made shorter by trying
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    Machine.server.start()
    try:
        stateful.run_state_machine_as_test(Machine, settings=runs)
    finally:
        Machine.server.kill()
