"""Programs that fill a workspace are ended before they fill the disk, and can empty it again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sessions_app.sandbox.bubblewrap import Bubblewrap
from sessions_app.sandbox.measuring import HeldOnDisk
from tests.support.people.commands import LIMITS, Commander, Outcome, commander, wait_for

pytestmark = pytest.mark.one_engine

ROOM = HeldOnDisk(40_000_000, 2_000)


@pytest.fixture
def agent() -> Iterator[Commander]:
    """Who runs commands in a workspace that is soon full."""
    with commander(None) as found:
        yield within(found, ROOM)


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commander]:
    """The same in memory, where commands write at their quickest, if it has the room."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2_000_000_000:
        monkeypatch.setattr(tempfile, "tempdir", str(memory))
    with commander(None) as found:
        yield within(found, ROOM)


def within(found: Commander, room: HeldOnDisk) -> Commander:
    """Return who runs commands in a workspace that may hold this much."""
    assert isinstance(found.sandbox, Bubblewrap)
    limits = LIMITS._replace(file_mb=1_000, workspace=room)
    return replace(found, sandbox=Bubblewrap(limits, found.sandbox.account))


def on_disk(directory: Path) -> int:
    told = subprocess.run(["du", "-s", "--block-size=1", directory], capture_output=True, check=True)
    return int(told.stdout.split()[0])


def ended_for_room(outcome: Outcome) -> bool:
    begin = "The workspace is full: it may hold 40 MB in 2,000 files and directories"
    return outcome.exit_code == -signal.SIGKILL and outcome.reason.startswith(begin)


@pytest.mark.timeout(600)
def test_what_fills_a_workspace_is_ended_in_whatever_way_it_does(
    in_memory: Commander, subtests: pytest.Subtests
) -> None:
    quickly = "dd if=/dev/zero bs=1M count=900 of"
    slowly = "for each in {1..90}; do head -c 10M /dev/zero; sleep 0.05; done"
    ways = {
        "one large file": f"{quickly}=large",
        "one large file, later": f"sleep 1.5; {quickly}=large",
        "a stream": "head -c 900M /dev/zero >large",
        "large files at once": f"for each in 1 2 3 4; do {quickly}=$each & done; wait",
        "copies, each with one call": "head -c 35M /dev/zero >0; while :; do cp 0 $RANDOM$RANDOM; done",
        "more programs all the time": "while sleep 0.01; do (head -c 30M /dev/zero >$RANDOM$RANDOM &); done",
        "reserved room": f"fallocate -l 900M large; {quickly}=large",
        "many files": "while :; do head -c 3M /dev/zero >$RANDOM$RANDOM; done",
        "small files": "seq 200000 | xargs -n 100 touch; sleep 60",
        "directories": "seq 200000 | xargs -n 100 mkdir; sleep 60",
        "a file without a name": "exec 5>gone; rm gone; head -c 900M /dev/zero >&5; sleep 60",
        "a directory that is not listed": f"mkdir -m 300 dark; {quickly}=dark/large",
        "a program in the background": f"(sleep 1; {quickly}=large) & wait",
        "a file that is deep": "long=$(printf 'd/%.0s' {1..900}); for each in 1 2; do mkdir -p $long; "
        f"cd $long; done; {slowly} >large",
    }
    for way, command in ways.items():
        with subtests.test(way):
            outcome = in_memory.run(f"{command}; echo not ended; sleep 60")
            assert ended_for_room(outcome), outcome
            assert on_disk(in_memory.workspace) < ROOM.bytes + 256_000_000
            assert in_memory.run("chmod -R u+rwx . && rm -rf -- * && ls -A").output == ""


def test_programs_that_write_quickly_are_stopped_while_many_files_are_counted(in_memory: Commander) -> None:
    files = 20_000
    agent = within(in_memory, HeldOnDisk(200_000_000, 2 * files))
    assert agent.run(f"seq {files} | xargs touch; sleep 2; echo end") == ("end\n", 0, "")
    outcome = agent.run("for each in 1 2; do dd if=/dev/zero of=$each bs=1M count=900 & done; wait; sleep 60")
    assert outcome.exit_code == -signal.SIGKILL
    assert outcome.reason.startswith("The workspace is full: it may hold 200 MB")
    assert on_disk(agent.workspace) < 200_000_000 + 128_000_000


def test_a_program_that_is_stopped_for_what_others_write_goes_on_unaware(in_memory: Commander) -> None:
    agent = in_memory
    if agent.server is not None:
        pytest.skip("its program is to be started by this process")
    # One program notes that it was stopped, by the signal that lets it go on.
    waits = "until test -e enough; do sleep 0.05 || echo bad; done"
    notes = f"( (trap 'touch stopped' CONT; {waits}) & )"
    # A shell with job control would say of a program that it has been stopped.
    command = f"{notes}; set -m; {waits}; echo $?; jobs; echo end"
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as others:
        program = agent.started(command, said.fileno())

        def has_been_stopped() -> bool:
            if os.fstat(others.fileno()).st_size < 500_000_000:
                others.write(bytes(20_000_000))
            return (agent.workspace / "stopped").exists()

        wait_for(has_been_stopped)
        others.truncate(0)
        (agent.workspace / "enough").touch()
        assert asyncio.run(asyncio.wait_for(program.wait(), 30)) == 0
        assert (program.reason, os.pread(said.fileno(), 1_000, 0)) == ("", b"0\nend\n")


def test_room_is_not_reserved_without_being_written(agent: Commander) -> None:
    said = agent.run("fallocate -l 30M large; fallocate --punch-hole -l 1 /dev/null; ls -s large; echo end")
    assert "Operation not supported" in said.output.splitlines()[0]
    assert said.output.splitlines()[-2:] == ["0 large", "end"]


def test_sparse_files_and_several_names_of_one_count_by_what_is_written(agent: Commander) -> None:
    names = "for each in {1..50}; do ln full $each; done"
    said = agent.run(f"truncate -s 900M sparse; head -c 20M /dev/zero >full; {names}; sleep 2; echo end")
    assert said == ("end\n", 0, "")


def test_a_full_workspace_is_read_and_emptied_but_not_filled_further(agent: Commander) -> None:
    for name in ("a", "b", "c"):
        with (agent.workspace / name).open("wb") as file:
            file.write(bytes(30_000_000))
    for _ in range(2):
        said = agent.run("ls; sleep 1.5; cat a | wc -c")
        assert said == ("a\nb\nc\n30000000\n", 0, "")
    assert ended_for_room(agent.run("sleep 1.5; head -c 30M /dev/zero >d; sleep 60"))
    assert agent.run("sleep 1.5; rm c d; sleep 1; rm b; sleep 1; echo end") == ("end\n", 0, "")
    assert agent.run("head -c 5M /dev/zero >e; sleep 1.5; echo end") == ("end\n", 0, "")


def test_a_program_that_only_waits_is_not_ended_for_what_another_one_writes(agent: Commander) -> None:
    if agent.server is not None:
        pytest.skip("both are to be started by one process")
    with tempfile.TemporaryFile() as said:

        def has_said(word: bytes) -> bool:
            assert waiting.reason == ""
            return word in Path(f"/proc/self/fd/{said.fileno()}").read_bytes()

        command = "echo begun; until test -e large; do sleep 0.1; done; sleep 3; echo later; sleep 300"
        waiting = agent.started(command, said.fileno())
        wait_for(lambda: has_said(b"begun"))
        assert ended_for_room(agent.run("dd if=/dev/zero of=large bs=1M count=900; sleep 60"))
        # Nor for what it has left.
        wait_for(lambda: has_said(b"later"))
        assert waiting.exit_code is None
        waiting.kill()
        assert asyncio.run(waiting.wait()) == -signal.SIGKILL
        assert waiting.reason == ""
