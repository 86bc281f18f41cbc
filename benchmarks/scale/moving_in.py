"""Import a gigabyte of JSON lines and a ChatGPT export of six, and say how much memory that takes.

Run as `python -m benchmarks.scale.moving_in`. It needs the sizes of both sources as room on the disk, and
half an hour. The zip file's images are not those of its conversations: they only lie beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks import machine, server
from benchmarks.databases import DATABASE_URL, Database, PostgreSQL, SQLite
from benchmarks.measured import moving_in

RESULTS = Path(__file__).resolve().parent.parent / "results"
MB = 1024 * 1024
LINES_MB, ZIP_MB, CHATS_MB = 1024, 6 * 1024, 1024
"""The sizes of the JSON lines, of the zip file, and of the conversations in it when they are unpacked."""
EVENTS, FEW = 20_000, 100
"""Of each conversation, but for one that is as long as all others together; and of a small one."""
MESSAGES = 10
SAID = "The cuckoo keeps its clock where nobody looks for it. " * 90
IMAGE_BYTES = 10 * MB


class Took(NamedTuple):
    """One import."""

    events: int
    seconds: float
    first_s: float
    """Until the first conversation was stored: by then the whole source was looked through."""
    peak_mb: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    asked = _parser().parse_args(arguments)
    path = RESULTS / f"moving-in-{datetime.now(UTC):%Y-%m-%d}.json"
    found: dict[str, Any] = {"when": datetime.now(UTC).isoformat(timespec="seconds"), **machine.facts()}
    with TemporaryDirectory(prefix="convserver-moving-in-", dir=asked.directory) as name:
        directory = Path(name)
        small, lines, chats = directory / "small", directory / "lines", directory / "export.zip"
        write_lines(small, 1, FEW)
        write_lines(lines, asked.lines_mb * MB // _line_bytes(small) // 2 // EVENTS or 1, EVENTS)
        write_chats(chats, asked.zip_mb, asked.chats_mb)
        for engine in asked.engine or ("SQLite", "PostgreSQL"):
            database = PostgreSQL(DATABASE_URL) if engine == "PostgreSQL" else SQLite(directory)
            found[engine] = _measured(database, directory, {"JSON lines": lines, "zip file": chats}, small)
            database.remove()
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(found, indent=1))
    return 0


def write_lines(directory: Path, conversations: int, events: int) -> None:
    """Write so many exported conversations, and one as long as all of them."""
    directory.mkdir()
    for count in (*[events] * conversations, events * conversations):
        moving_in.exported(directory, count).rename(directory / f"{os.urandom(8).hex()}.jsonl")


def write_chats(file: Path, zip_mb: int, chats_mb: int) -> None:
    """Write a zip file of this size, with `conversations.json` packed and images as they are."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as written:
        info = zipfile.ZipInfo("conversations.json")
        info.compress_type = zipfile.ZIP_DEFLATED
        with written.open(info, "w", force_zip64=True) as packed:
            for piece in _chats(chats_mb * MB):
                packed.write(piece)
        number = 0
        while file.stat().st_size < zip_mb * MB:
            written.writestr(f"file-{number:08}-image.png", os.urandom(IMAGE_BYTES))
            number += 1


def _chats(size: int) -> Iterator[bytes]:
    total, number = 0, 0
    while total < size:
        piece = json.dumps(_chat(f"chat-{number}")).encode()
        yield (b"," if number else b"[") + piece
        total, number = total + len(piece), number + 1
    yield b"]"


def _chat(chat_id: str) -> dict[str, Any]:
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": ["0"]}}
    for number in range(MESSAGES):
        mapping[str(number)] = {
            "id": str(number),
            "parent": str(number - 1) if number else "root",
            "children": [str(number + 1)] if number + 1 < MESSAGES else [],
            "message": {
                "id": f"{chat_id}-{number}",
                "author": {"role": "assistant" if number % 2 else "user"},
                "create_time": 1_700_000_000 + number,
                "content": {"content_type": "text", "parts": [f"{number}: {SAID}"]},
                "recipient": "all",
            },
        }
    about = {"id": chat_id, "conversation_id": chat_id, "title": chat_id, "create_time": 1_700_000_000}
    return about | {"mapping": mapping, "current_node": str(MESSAGES - 1)}


def _measured(
    database: Database, directory: Path, sources: dict[str, Path], small: Path
) -> dict[str, dict[str, float]]:
    usual = _imported(database, directory, small)
    found = {}
    for name, source in sources.items():
        took = _imported(database, directory, source)
        found[name] = {
            "MB": round(_size(source) / MB),
            "events": took.events,
            "seconds": round(took.seconds, 1),
            "events/s": round(took.events / took.seconds),
            "until the first is stored, s": round(took.first_s, 1),
            "memory growth, MB": round(took.peak_mb - usual.peak_mb, 1),
        }
        print(f"{database.engine}: {name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def _imported(database: Database, directory: Path, source: Path) -> Took:
    own = {"DATABASE_URL": database.url, "CONVSERVER_DATA_DIR": str(directory)}
    command = [sys.executable, "-m", "convserver", "import", str(source)]
    environment = server.environment() | own
    began, first_s, last = time.perf_counter(), 0.0, ""
    with subprocess.Popen(
        command, env=environment, cwd=server.ROOT, stdout=subprocess.PIPE, text=True
    ) as run:
        memory = server.Memory(run.pid)
        with memory.watched():
            assert run.stdout is not None
            for line in run.stdout:
                first_s, last = first_s or time.perf_counter() - began, line
    if run.returncode:
        raise SystemExit(f"The import of {source} failed: {last}")
    return Took(_count(last), time.perf_counter() - began, first_s, memory.peak_mb)


def _count(said: str) -> int:
    """Return how many events were imported, by the last line that the command prints."""
    return int(said.partition("imported ")[2].partition(" ")[0])


def _size(source: Path) -> int:
    files = source.iterdir() if source.is_dir() else [source]
    return sum(file.stat().st_size for file in files)


def _line_bytes(directory: Path) -> int:
    return _size(directory) // (2 * FEW)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", action="append", choices=("SQLite", "PostgreSQL"), help="this one alone")
    parser.add_argument("--lines-mb", type=int, default=LINES_MB, help="JSON lines")
    parser.add_argument("--zip-mb", type=int, default=ZIP_MB, help="the zip file")
    parser.add_argument("--chats-mb", type=int, default=CHATS_MB, help="conversations in it, unpacked")
    parser.add_argument("--directory", type=Path, help="where there is room for the sources")
    return parser


if __name__ == "__main__":
    sys.exit(main())
