"""Whatever is appended, repeated, refused, cut off and read in whatever order: the history is a right one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, connection, connections
from hypothesis import settings, stateful
from hypothesis import strategies as st

from conversations.events import ConversationRef, NewEvent
from conversations.exceptions import ConversationError
from conversations.log import reads, writes
from conversations.log.append import AppendRequest
from conversations.store import creation
from faults.checker.history import Did, Record
from faults.checker.judge import checked
from tests.support.data.events import event

pytestmark = pytest.mark.no_second_try

RUNS, FULL_RUNS = 50, 500
STEPS = 25
keys = st.sampled_from([f"k{number}" for number in range(6)])


class _Undone(Exception):
    pass


class Machine(stateful.RuleBasedStateMachine):
    """One log, two readers, and the faults that a process can meet in itself."""

    alice: User

    def __init__(self) -> None:
        super().__init__()
        self.talk: ConversationRef = creation.create(self.alice, conversation_id=uuid4().hex)
        self.readers = {"one": -1, "other": -1}
        self.history = [self._record(Did.JOIN, reader) for reader in self.readers]

    def _record(self, did: Did, key: str, seq: int = -1, text: str = "") -> Record:
        return Record(did, self.talk.public_id, key, seq, text)

    def _event(self, key: str) -> NewEvent:
        return event(key, event_id=key)

    @stateful.rule(key=keys)
    def append(self, key: str) -> None:
        """Send an event, for the first time or again."""
        self.history.append(self._record(Did.INVOKE, key))
        try:
            (appended,) = writes.append(self.talk, [self._event(key)])
        except (OperationalError, InterfaceError, ConversationError):
            self.history.append(self._record(Did.REFUSED, key))
            connections.close_all()
        else:
            self.history.append(self._record(Did.ACK, key, appended.seq))

    @stateful.rule(sent=st.lists(keys, min_size=2, max_size=4, unique=True))
    def append_together(self, sent: list[str]) -> None:
        """Let several callers share a commit."""
        self.history += [self._record(Did.INVOKE, key) for key in sent]
        requests = [AppendRequest(conversation=self.talk, events=[self._event(key)]) for key in sent]
        try:
            outcomes = writes.append_many(requests, wait=True)
        except (OperationalError, InterfaceError):
            self.history += [self._record(Did.REFUSED, key) for key in sent]
            connections.close_all()
            return
        for key, outcome in zip(sent, outcomes, strict=True):
            assert not isinstance(outcome, ConversationError)
            self.history.append(self._record(Did.ACK, key, outcome.appended[0].seq))

    @stateful.rule(key=keys)
    def append_and_fail(self, key: str) -> None:
        """Let what belongs to an append fail in the same transaction."""

        def fail(appended: Any) -> NoReturn:
            raise _Undone

        self.history.append(self._record(Did.INVOKE, key))
        with suppress(_Undone, OperationalError, InterfaceError):
            writes.append(self.talk, [self._event(key)], also=fail)
        self.history.append(self._record(Did.REFUSED, key))

    @stateful.rule()
    def lose_connection(self) -> None:
        """Let the connection be closed under the writer, who finds out by using it."""
        connection.ensure_connection()
        if connection.vendor == "postgresql":
            with suppress(OperationalError), connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    @stateful.rule()
    def restart(self) -> None:
        """Forget everything that is not stored."""
        connections.close_all()

    @stateful.rule(reader=st.sampled_from(["one", "other"]))
    def read(self, reader: str) -> None:
        connection.close_if_unusable_or_obsolete()
        for found in reads.read_after(self.talk, self.readers[reader], limit=3):
            self.history.append(self._record(Did.READ, reader, found["seq"], found["id"]))
            self.readers[reader] = found["seq"]

    @stateful.rule()
    def look(self) -> None:
        """Ask how long the log is."""
        connection.close_if_unusable_or_obsolete()
        self.history.append(self._record(Did.LOOK, "?"))
        found = reads.read_after(self.talk, -1)
        self.history.append(self._record(Did.LOOKED, "?", len(found) - 1))

    @stateful.invariant()
    def the_history_is_right(self) -> None:
        """Compare all that was answered with what is stored."""
        connection.close_if_unusable_or_obsolete()
        rows = reads.read_after(self.talk, -1)
        stored = [self._record(Did.STORED, row["id"], row["seq"]) for row in rows]
        assert checked(self.history, stored).violations == []


def test_every_history_of_appends_faults_and_reads_is_right(alice: User, is_full: bool) -> None:
    Machine.alice = alice
    runs = settings(max_examples=FULL_RUNS if is_full else RUNS, stateful_step_count=STEPS, deadline=None)
    stateful.run_state_machine_as_test(Machine, settings=runs)
