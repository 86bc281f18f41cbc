"""A copy of a format's samples in which some files have faults for a while."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tests.support.data.mutations import mutated, mutated_json


@contextmanager
def mutated_files(copy: Path, seed: int, *, is_sealed: bool = False) -> Iterator[None]:
    """Put faults into one to four files of a directory, the same for the same seed, and take them out again.

    An export of one that is sealed names the bytes that it has, as if it had been written so.
    """
    chance = random.Random(seed)
    files = sorted(file for file in copy.rglob("*") if file.is_file())
    whole = {file: file.read_bytes() for file in files}
    try:
        for file in chance.sample(files, min(len(files), chance.randint(1, 4))):
            mutate = mutated if file.suffix == ".jsonl" else mutated_json
            file.write_bytes(mutate(whole[file], chance.randrange(2**32)))
        if is_sealed:
            _seal([file for file in files if file.suffix == ".jsonl"])
        yield
    finally:
        for file, content in whole.items():
            if file.read_bytes() != content:
                file.write_bytes(content)


def _seal(exports: Iterable[Path]) -> None:
    for file in exports:
        first, line_feed, rest = file.read_bytes().partition(b"\n")
        try:
            manifest = json.loads(first)
        except ValueError:
            continue
        if isinstance(manifest, dict) and line_feed:
            events = b"".join(line for line in rest.splitlines(True) if not line.startswith(b'{"type":"end"'))
            events += b"" if events.endswith(b"\n") or not events else b"\n"
            head = json.dumps(manifest | {"events": events.count(b"\n")}).encode()
            end = json.dumps({"type": "end", "sha256": sha256(events).hexdigest()}, separators=(",", ":"))
            file.write_bytes(head + b"\n" + events + end.encode())
