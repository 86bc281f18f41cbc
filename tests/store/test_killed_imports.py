"""Imports that are killed at any statement, or run twice at once, store what one import stores."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.models import Conversation
from conversations.transcripts.sources import lines
from sessions_app.live import marks
from sessions_app.models import AgentLoop, ExecutionStatus
from tests.support.data import stored
from tests.support.data.import_samples import DATA, SAMPLES, imported
from tests.support.data.threads import in_threads

pytestmark = pytest.mark.no_second_try

KILLS = 6
IDLE = ExecutionStatus.IDLE


class Killed(BaseException):
    """The process has ended: nothing catches this."""


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file count as one that is being written to, however new a checkout is."""
    monkeypatch.setattr(lines, "FRESH_S", 0.0)


@contextmanager
def killed_after(count: int) -> Iterator[None]:
    """End with Killed instead of sending the statement after so many."""
    sent = 0

    def count_down(execute: Callable[..., Any], *rest: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == count + 1:
            raise Killed
        return execute(*rest)

    with connection.execute_wrapper(count_down):
        yield


def found_right(format: str) -> str:
    """Return what one import stores of the samples."""
    told = json.loads((DATA / "golden" / f"{format}.json").read_text())
    return stored.written({"conversations": told["conversations"]})


def found(owner: User) -> str:
    return stored.written({"conversations": stored.dump(Conversation.objects.filter(owner=owner))})


def unsettled(owner: User) -> list[str]:
    """Return the conversations that have events and are shown as news, or with an agent that is at work."""
    rows = Conversation.objects.filter(owner=owner, next_seq__gt=0)
    settled = {row.pk for row in rows if marks.seen_through(owner.pk, row.ref) == row.next_seq - 1}
    states = dict(AgentLoop.objects.values_list("conversation_id", "execution_status"))
    return [row.public_id for row in rows if row.pk not in settled or states.get(row.pk) == IDLE]


@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.sampled(2)
def test_an_import_that_is_killed_at_any_statement_and_goes_on_stores_the_same(
    format: str, alice: User, chance: random.Random
) -> None:
    for _ in range(KILLS):
        with killed_after(chance.randrange(400)), suppress(Killed):
            imported(format)
        assert unsettled(alice) == []
    imported(format)
    assert found(alice) == found_right(format)


@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.sampled(4)
def test_two_imports_at_once_store_the_same(format: str, alice: User) -> None:
    def take(_: int) -> None:
        imported(format)

    in_threads(2, take)
    assert found(alice) == found_right(format)
