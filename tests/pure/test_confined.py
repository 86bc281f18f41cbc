"""Confined processes: what reads a stranger's file there can do nothing else, and ends at its limits."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conversations.confined import processes
from conversations.confined.processes import Limits, NotRead

LIMITS = Limits(memory_bytes=512 * 1024 * 1024, cpu_s=20, wall_s=60.0, output_bytes=1_000_000)
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
import json, os, socket

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
        ]
    found["network"] = tried(lambda: socket.create_connection(("127.0.0.1", port)).close())
    found["process"] = tried(lambda: os.system("true") and "refused")
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
    if not processes.has_landlock():
        pytest.skip("this kernel has no Landlock")
    refused = "PermissionError"
    assert found["given"] == ["whole", *[refused] * 5]
    assert found["copied"] == ["whole", None, "OSError", *[refused] * 3]
    assert found["other"] == [refused] * 6
    assert found["process"] == "refused"
    if processes.has_landlock(4):
        assert found["network"] == refused


def test_a_reader_that_takes_too_much_is_ended(tmp_path: Path, subtests: pytest.Subtests) -> None:
    hungry = "def read():\n    kept = [bytearray(1_000_000) for _ in range(10_000)]\n"
    talking = "def read():\n    while True: print('x' * 1000)\n"
    waiting = "import time\n\ndef read():\n    time.sleep(1000)\n"
    for what, code, limits in (
        ("takes longer", ENDLESS, replace(LIMITS, cpu_s=1)),
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
