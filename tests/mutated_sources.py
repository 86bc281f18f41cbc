"""Copies of a format's samples in which some files have faults."""

from __future__ import annotations

import json
import random
import shutil
from hashlib import sha256
from pathlib import Path

from tests.mutations import mutated, mutated_json


def mutated_copy(source: Path, target: Path, seed: int) -> Path:
    """Copy a directory, with faults in one to four of its files; the same for the same seed."""
    shutil.copytree(source, target)
    chance = random.Random(seed)
    files = sorted(file for file in target.rglob("*") if file.is_file())
    for file in chance.sample(files, min(len(files), chance.randint(1, 4))):
        mutate = mutated if file.suffix == ".jsonl" else mutated_json
        file.write_bytes(mutate(file.read_bytes(), chance.randrange(2**32)))
    return target


def seal(directory: Path) -> None:
    """Let the exports of a directory name the bytes that they have, as if they had been written so."""
    for file in directory.rglob("*.jsonl"):
        first, line_feed, rest = file.read_bytes().partition(b"\n")
        try:
            manifest = json.loads(first)
        except ValueError:
            continue
        if isinstance(manifest, dict) and line_feed:
            told = {"sha256": sha256(rest).hexdigest(), "events": rest.count(b"\n")}
            file.write_bytes(json.dumps(manifest | told).encode() + b"\n" + rest)
