"""Confined processes: what reads a stranger's file there can do nothing else, and ends at its limits."""

from __future__ import annotations

import fcntl
import json
import platform
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conversations.confined import processes, walls
from conversations.confined.processes import NotRead, ProcessLimits
from tests.support.wires.network import wait_until

LIMITS = ProcessLimits(memory_bytes=512 * 1024 * 1024, cpu_s=20, wall_s=60.0, output_bytes=1_000_000)
ENDLESS = "def read():\n    while True: pass\n"


def reader(directory: Path, code: str) -> Path:
    file = directory / "reader.py"
    file.write_text(code)
    return file


def test_a_reader_prints_what_it_was_asked_for(tmp_path: Path) -> None:
    code = "def read(*arguments):\n    print(arguments)\n"
    with processes.run(reader(tmp_path, code), ["a", 1, None, {"b": 2}], limits=LIMITS) as output:
        assert output.read() == b"('a', 1, None, {'b': 2})\n"


def test_a_reader_reads_its_files_and_can_write_to_none(tmp_path: Path) -> None:
    given, copied, other = tmp_path / "given", tmp_path / "copied", tmp_path / "other"
    for directory in (given, copied, other):
        directory.mkdir()
        (directory / "file").write_text("whole")
    code = """
import json, os, resource, socket

def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__

def written(path, mode):
    with open(path, mode) as file:
        file.write("x")

def read(given, copied, other, port):
    found = {}
    for name, place in (("given", given), ("copied", copied), ("other", other)):
        found[name] = [
            tried(lambda: open(place + "/file").read()),
            tried(lambda: open(place + "/file", "r+").close()),
            tried(lambda: written(place + "/file", "r+")),
            tried(lambda: written(place + "/new", "w")),
            tried(lambda: os.unlink(place + "/file")),
            tried(lambda: os.rename(place + "/file", place + "/renamed")),
            tried(lambda: os.chmod(place + "/file", 0o777)),
            tried(lambda: os.utime(place + "/file", (0, 0))),
            tried(lambda: os.truncate(place + "/file", 0)),
        ]
    found["others"] = [
        tried(lambda: socket.create_connection(("127.0.0.1", port)).close()),
        tried(lambda: socket.socket(socket.AF_UNIX).close()),
        tried(lambda: os.fork()),
        tried(lambda: os.kill(os.getppid(), 0)),
        tried(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (5, 5))),
        tried(lambda: os.execv("/bin/true", ["true"])),
    ]
    print(json.dumps(found))
"""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = [str(given), str(copied), str(other), listening.getsockname()[1]]
        with processes.run(
            reader(tmp_path, code), arguments, limits=LIMITS, readable=[given], writable=[copied]
        ) as output:
            found = json.loads(output.read())
    for directory in (given, copied, other):
        assert [file.name for file in directory.iterdir()] == ["file"]
        assert (directory / "file").read_text() == "whole"
    if walls.landlock_version() < 1:
        pytest.skip("this kernel has no Landlock")
    refused = "PermissionError"
    assert found["given"] == ["whole", *[refused] * 8]
    assert found["copied"] == ["whole", None, "OSError", *[refused] * 6]
    assert found["other"] == [refused] * 9
    assert found["others"] == [refused] * 6


def test_without_landlock_a_reader_can_still_remove_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if platform.machine() not in walls.MACHINES or sys.platform != "linux":
        pytest.skip("there is no filter of system calls for this machine")
    code = Path(walls.__file__).read_text()
    without = tmp_path / "walls.py"
    without.write_text(code.replace("if landlock_version() > 0:", "if False:"))
    assert without.read_text() != code
    monkeypatch.setattr(walls, "__file__", str(without))
    victim = tmp_path / "victim"
    victim.write_text("whole")
    code = """
import json, mmap, os, socket

def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__

def changed(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 5) as shared:
        shared[:5] = b"other"

def read(victim):
    print(json.dumps([
        tried(lambda: os.unlink(victim)),
        tried(lambda: os.rename(victim, victim + "-moved")),
        tried(lambda: open(victim, "w").close()),
        tried(lambda: changed(victim)),
        tried(lambda: os.chmod(victim, 0o777)),
        tried(lambda: os.fork()),
        tried(lambda: socket.socket().close()),
        tried(lambda: os.kill(os.getppid(), 0)),
    ]))
"""
    with processes.run(reader(tmp_path, code), [str(victim)], limits=LIMITS) as output:
        assert json.loads(output.read()) == ["PermissionError"] * 8
    assert victim.read_text() == "whole"


def test_a_reader_that_takes_too_much_is_ended(tmp_path: Path, subtests: pytest.Subtests) -> None:
    hungry = "def read():\n    kept = [bytearray(1_000_000) for _ in range(10_000)]\n"
    talking = "def read():\n    while True: print('x' * 1000)\n"
    waiting = "import time\n\ndef read():\n    time.sleep(1000)\n"
    for what, code, limits in (
        ("takes longer", ENDLESS, replace(LIMITS, cpu_s=1)),
        ("broke off", "import os\n\ndef read():\n    os.close(1)\n    while True: pass\n", LIMITS),
        ("broke off", "import os\n\ndef read():\n    print('half', flush=True)\n    os._exit(0)\n", LIMITS),
        ("takes longer", waiting, replace(LIMITS, wall_s=0.5)),
        ("far more in it", talking, LIMITS),
        ("more memory", hungry, LIMITS),
    ):
        if what == "more memory" and sys.platform == "darwin":
            continue
        with subtests.test(what), pytest.raises(NotRead, match=what):
            processes.run(reader(tmp_path, code), [], limits=limits)


def test_a_reader_that_fails_says_why(tmp_path: Path) -> None:
    code = "def read():\n    print('half')\n    raise ValueError('the page 7 is damaged')\n"
    with pytest.raises(NotRead, match=r"^the page 7 is damaged$"):
        processes.run(reader(tmp_path, code), [], limits=LIMITS)


def test_a_reader_is_killed_when_it_is_cancelled(tmp_path: Path) -> None:
    class Cancelled(Exception):
        pass

    checks = iter(range(3))

    def check() -> None:
        if next(checks, None) is None:
            raise Cancelled

    with processes.checked_by(check), pytest.raises(Cancelled):
        processes.run(reader(tmp_path, ENDLESS), [], limits=LIMITS)


def test_a_reader_ends_when_the_process_is_killed_that_waits_for_it(tmp_path: Path) -> None:
    """By a lock that the reader holds for as long as it lives."""
    lock = tmp_path / "lock"
    lock.touch()
    code = f"import fcntl\nheld = open({str(lock)!r})\nfcntl.flock(held, fcntl.LOCK_EX)\n{ENDLESS}"
    waiting = (
        "from pathlib import Path\nfrom conversations.confined import processes\n"
        "limits = processes.ProcessLimits(memory_bytes=10**9, cpu_s=60, wall_s=60.0, output_bytes=1)\n"
        f"processes.run(Path({str(reader(tmp_path, code))!r}), [], limits=limits)"
    )

    def is_held() -> bool:
        with lock.open() as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    with subprocess.Popen([sys.executable, "-c", waiting], cwd=Path(__file__).parents[2]) as process:
        try:
            wait_until(is_held)
        finally:
            process.kill()
    if sys.platform == "linux":
        wait_until(lambda: not is_held())
