"""Following a program that writes its sessions: every whole line is stored once, in order, and soon."""

from __future__ import annotations

import json
import random
import signal
import statistics
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, Event
from tests import forks
from tests.clients import program_environment
from tests.network import wait_until

pytestmark = pytest.mark.needs_engine

SOON_S = 2.0
LINES, LINES_FULL = 120, 10_000
SETTLED_S = 60.0


class Program:
    """A program that writes sessions as real ones do: it appends, is cut off, begins new files, deletes."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.written: dict[str, list[str]] = defaultdict(list)
        """By session: the texts of the whole lines that it has written, in order."""
        self._directory = directory
        self._chance = chance
        self._parent: str | None = None
        self._begin()

    @property
    def whole(self) -> dict[str, list[str]]:
        """Those sessions that have a whole line."""
        return {session: texts for session, texts in self.written.items() if texts}

    def step(self) -> None:
        """Write a line, now and then in two halves, and sometimes something else."""
        what = self._chance.random()
        if what < 0.02:
            self._begin()
        elif what < 0.04:
            self._rewrite()
        elif what < 0.06:
            self._cut_off()
        else:
            self._append(in_halves=what < 0.2)

    def delete_one(self) -> None:
        """Delete a session, as programs do after some days; not the present one."""
        for file in sorted(self._directory.glob("*.jsonl"))[:1]:
            if file != self._file:
                file.unlink()

    def _begin(self) -> None:
        self._file = self._directory / f"{uuid4()}.jsonl"
        self._parent = None

    def _line(self) -> tuple[str, str]:
        text = f"{len(self.written[self._file.stem])} {datetime.now(UTC).isoformat()}"
        uuid = str(uuid4())
        line = {
            "type": "user",
            "uuid": uuid,
            "parentUuid": self._parent,
            "sessionId": self._file.stem,
            "timestamp": datetime.now(UTC).isoformat(),
            "message": {"role": "user", "content": text},
        }
        self._parent = uuid
        return text, json.dumps(line)

    def _append(self, *, in_halves: bool) -> None:
        text, line = self._line()
        middle = self._chance.randrange(len(line)) if in_halves else 0
        with self._file.open("a") as file:
            file.write(line[:middle])
            file.flush()
            file.write(line[middle:] + "\n")
        self.written[self._file.stem].append(text)

    def _cut_off(self) -> None:
        """Leave half a line, as a killed program does, and go on below it."""
        parent = self._parent
        _, line = self._line()
        self._parent = parent
        with self._file.open("a") as file:
            file.write(line[: len(line) // 2])
            file.flush()
            file.write("\n")

    def _rewrite(self) -> None:
        """Replace the file by one with the same lines."""
        if self._file.exists():
            copy = self._file.with_suffix(".tmp")
            copy.write_bytes(self._file.read_bytes())
            copy.replace(self._file)


class Followers:
    """`convserver import … --follow` as a process that is killed and started again."""

    def __init__(self, directory: Path, tmp_path: Path) -> None:
        self._what = ["convserver", "import", "claude-code", str(directory), "--follow"]
        self._environment = program_environment(tmp_path)
        self.log = tmp_path / "follow.log"
        self._running: list[forks.Running] = []
        self._started = 0

    def start(self) -> forks.Running:
        self._started += 1
        with self.log.open("ab") as log:
            running = forks.start(self._what, self._environment, stdout=log, stderr=log)
        self._running.append(running)
        return running

    def wait(self) -> None:
        """Wait until the latest one follows."""
        wait_until(lambda: self.log.read_text().count("Following") >= self._started, within_s=SETTLED_S)

    def kill(self) -> None:
        for running in self._running:
            running.send_signal(signal.SIGKILL)
            running.wait(SETTLED_S)
        self._running = []


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "projects" / "-home-ana"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def followers(database: None, alice: User, directory: Path, tmp_path: Path) -> Iterator[Followers]:
    followers = Followers(directory, tmp_path)
    yield followers
    followers.kill()


def stored() -> dict[str, list[str]]:
    """Return the texts of each session's messages, in order."""
    found: dict[str, list[str]] = {}
    for talk in Conversation.objects.all():
        rows = Event.objects.filter(conversation=talk, type="MessageEvent").order_by("seq")
        found[talk.tags["source_id"]] = list(rows.values_list("text", flat=True))
    return found


def delays_s() -> list[float]:
    """Return for each message how long after it was written it was stored."""
    rows = Event.objects.filter(type="MessageEvent").values_list("text", "received_at")
    return [(at - datetime.fromisoformat(text.split()[1])).total_seconds() for text, at in rows]


def test_every_whole_line_is_stored_once_and_in_order(
    followers: Followers, directory: Path, chance: random.Random, is_full: bool
) -> None:
    program = Program(directory, chance)
    followers.start()
    followers.wait()
    count = LINES_FULL if is_full else LINES
    for number in range(count):
        program.step()
        if number % (count // 2) == count // 4:
            followers.kill()
            followers.start()
            followers.wait()
        if number % 30 == 0:  # as fast as it is stored, or there would be no delay to speak of
            wait_until(lambda: stored() == program.whole, within_s=SETTLED_S)
            program.delete_one()
    wait_until(lambda: stored() == program.whole, within_s=SETTLED_S)
    if is_full:  # how soon that is depends on what else runs
        assert statistics.median(delays_s()) < SOON_S


def test_a_second_follower_says_that_there_is_one(followers: Followers, directory: Path) -> None:
    followers.start()
    followers.wait()
    assert followers.start().wait(SETTLED_S) == 1
    assert "Another process follows this already." in followers.log.read_text()


def test_a_follower_ends_when_it_is_told_to(followers: Followers, directory: Path) -> None:
    running = followers.start()
    followers.wait()
    running.send_signal(signal.SIGTERM)
    assert running.wait(SETTLED_S) == 0


def test_an_import_that_is_killed_goes_on_where_it_was(
    database: None, alice: User, directory: Path, chance: random.Random, tmp_path: Path
) -> None:
    program = Program(directory, chance)
    for _ in range(2_000):
        program.step()
    command = ["convserver", "import", "claude-code", str(directory)]
    environment = program_environment(tmp_path)
    with (tmp_path / "import.log").open("ab") as log:
        running = forks.start(command, environment, stdout=log, stderr=log)
        wait_until(Event.objects.exists, within_s=SETTLED_S)
        running.send_signal(signal.SIGKILL)
        running.wait(SETTLED_S)
    assert forks.run(command, environment).returncode == 0
    assert stored() == program.whole
