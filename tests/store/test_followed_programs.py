"""Programs that a switch keeps in step: followed while it is on, by one process, and with a state to see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from conversations.models import Event
from sessions_app import astore
from sessions_app.imports.followers import programs, runner
from sessions_app.imports.followers.runner import FollowerRunner
from sessions_app.models import FollowedProgram
from tests.support.people.scripted_agent import until

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def home(configured: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a home directory and a data directory of this test's own, and look often."""
    configured(data_dir=tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(runner, "POLL_S", 0.1)
    monkeypatch.setattr(runner, "IDLE_POLL_S", 0.1)
    return tmp_path


@pytest.fixture
async def two_runners(live: None) -> AsyncIterator[None]:
    """Two servers on one computer."""
    tasks = [asyncio.create_task(FollowerRunner().run()) for _ in range(2)]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def say(home: Path, session: str, text: str) -> None:
    """Write a line as Claude Code does."""
    file = home / ".claude" / "projects" / "shop" / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "type": "user",
        "uuid": str(uuid4()),
        "parentUuid": None,
        "sessionId": session,
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": text},
    }
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


def texts() -> list[str]:
    return list(Event.objects.filter(kind="message").order_by("pk").values_list("text", flat=True))


@pytest.mark.no_second_try
async def test_what_a_program_writes_is_stored_once_while_it_is_switched_on(
    alice: User, home: Path, two_runners: None
) -> None:
    session = str(uuid4())
    say(home, session, "one")
    await astore.call(lambda: programs.switch(alice.pk, "claude-code", is_on=True))
    assert await until(texts) == ["one"]
    say(home, session, "two")
    assert await until(lambda: texts() if len(texts()) > 1 else None) == ["one", "two"]
    row = await until(lambda: FollowedProgram.objects.exclude(stored_at=None).first())
    assert row is not None
    assert (row.files, row.is_on) == (1, True)


async def test_a_program_that_is_not_there_is_said_to_be_missing(alice: User, two_runners: None) -> None:
    await astore.call(lambda: programs.switch(alice.pk, "codex", is_on=True))
    row = await until(lambda: FollowedProgram.objects.exclude(problem="").first())
    assert row is not None
    assert "does not exist" in row.problem or row.problem == runner.ELSEWHERE


async def test_who_switches_it_off_stops_it(alice: User, home: Path, live: None) -> None:
    following = FollowerRunner()
    task = asyncio.create_task(following.run())
    session = str(uuid4())
    say(home, session, "one")
    await astore.call(lambda: programs.switch(alice.pk, "claude-code", is_on=True))
    assert await until(texts) == ["one"]
    (held,) = following._followed.values()
    await astore.call(lambda: programs.switch(alice.pk, "claude-code", is_on=False))
    await until(lambda: held.has_ended)
    say(home, session, "two")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await astore.call(texts) == ["one"]


def test_with_accounts_there_is_nothing_to_follow(alice: User, accounts: None) -> None:
    assert programs.of_user(alice.pk) == []
    with pytest.raises(programs.NotFollowed):
        programs.switch(alice.pk, "claude-code", is_on=True)
