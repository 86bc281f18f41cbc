"""Following a program that writes its sessions: every whole line is stored once, in order, and soon."""

from __future__ import annotations

import random
import signal
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.models import Event
from tests.conftest import on_sqlite
from tests.support.people.clients import program_environment
from tests.support.people.followed import SETTLED_S, Followers, Program, Stored, lacking, said_of
from tests.support.runner import forks
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.needs_engine, pytest.mark.no_second_try]

SOON_S = 2.0
LINES, LINES_FULL = 600, 10_000
KILLS, KILLS_FULL = 2, 8
PAUSE_S, PAUSE_FULL_S = 0.008, 0.015
SETTLED_FULL_S = 300.0
IMPORTED_LINES = 2_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "sessions"
    made.mkdir()
    return made


@pytest.fixture
def followers(
    request: pytest.FixtureRequest, database: None, alice: User, directory: Path, tmp_path: Path
) -> Iterator[Followers]:
    followers = Followers([getattr(request, "param", "claude-code"), str(directory)], tmp_path)
    yield followers
    followers.kill()


@pytest.fixture
def program(
    request: pytest.FixtureRequest, directory: Path, tmp_path: Path, chance: random.Random, is_full: bool
) -> Iterator[Program]:
    program = Program(
        directory,
        tmp_path,
        format=getattr(request, "param", "claude-code"),
        lines=LINES_FULL if is_full else LINES,
        pause_s=PAUSE_FULL_S if is_full else PAUSE_S,
        chance=chance,
    )
    yield program
    program.kill()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("program", "followers"),
    [("claude-code", "claude-code"), pytest.param("codex", "codex", marks=on_sqlite)],
    indirect=True,
)
@pytest.mark.sampled(1)
def test_every_whole_line_is_stored_once_and_in_order_whoever_is_killed(
    program: Program,
    followers: Followers,
    chance: random.Random,
    is_full: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines, kills = (LINES_FULL, KILLS_FULL) if is_full else (LINES, KILLS)
    stored = Stored()

    def has_written(number: int) -> bool:
        """Look what is stored meanwhile, and let the program destroy that."""
        if stored.look():
            program.tell_stored(stored.whole_sessions(program.journal()))
        return program.has_ended() or program.last_number() >= number

    def is_stored() -> bool:
        stored.look_anew()
        return not lacking(program.journal(), stored)

    followers.start()
    followers.wait()
    program.start()
    for number, victim in moments(chance, lines, kills, [program, followers]):
        wait_until(partial(has_written, number), within_s=SETTLED_FULL_S)
        victim.kill()
        victim.start()
    wait_until(lambda: has_written(lines + 1), within_s=SETTLED_FULL_S)
    try:
        wait_until(is_stored, within_s=SETTLED_S)
    except TimeoutError:
        assert not lacking(program.journal(), stored), followers.log.read_text()[-4000:]
    stored.require_order(program.journal())
    stored.require_no_halves(program.journal())
    delays_s = stored.delays_s(program.journal())
    with capsys.disabled():
        print(said_of(delays_s))
    if is_full:  # how soon that is depends on what else runs
        assert statistics.median(delays_s) < SOON_S


def moments(
    chance: random.Random, lines: int, kills: int, victims: list[Program | Followers]
) -> list[tuple[int, Program | Followers]]:
    """Return after which lines whom to kill, each in every part of the time."""
    part = lines * 9 // 10 // kills
    drawn = [
        (place * part + chance.randrange(part), place, victim) for place in range(kills) for victim in victims
    ]
    return [(number, victim) for number, _, victim in sorted(drawn, key=lambda each: each[:2])]


@pytest.mark.slow(on="postgresql")
def test_a_second_follower_says_that_there_is_one(followers: Followers) -> None:
    followers.start()
    followers.wait()
    assert followers.start().wait(SETTLED_S) == 1
    assert "Another process follows this already." in followers.log.read_text()


def test_a_follower_ends_when_it_is_told_to(followers: Followers) -> None:
    running = followers.start()
    followers.wait()
    running.send_signal(signal.SIGTERM)
    assert running.wait(SETTLED_S) == 0


@pytest.mark.slow(on="postgresql")
def test_an_import_that_is_killed_goes_on_where_it_was(
    database: None, alice: User, directory: Path, chance: random.Random, tmp_path: Path
) -> None:
    program = Program(
        directory, tmp_path, format="claude-code", lines=IMPORTED_LINES, pause_s=0.0, chance=chance
    )
    program.run()
    command = ["convserver", "import", "claude-code", str(directory)]
    environment = program_environment(tmp_path)
    with (tmp_path / "import.log").open("ab") as log:
        running = forks.start(command, environment, stdout=log, stderr=log)
        wait_until(Event.objects.exists, within_s=SETTLED_S)
        running.send_signal(signal.SIGKILL)
        running.wait(SETTLED_S)
    assert forks.run(command, environment).returncode == 0
    stored = Stored()
    stored.look_anew()
    assert not lacking(program.journal(), stored)
    stored.require_order(program.journal())
