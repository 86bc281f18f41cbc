"""Damaged sources of which each event is a file or a line: each is read or left out, with the reason."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from conversations.events import NewEvent
from conversations.transcripts import openhands_v1
from conversations.transcripts.local_times import LocalTimes
from conversations.transcripts.sources import openhands_v0, own
from conversations.transcripts.sources.hermes import journals
from conversations.transcripts.sources.nodes import Unreadable
from tests.support.data.import_samples import SAMPLES
from tests.support.data.mutated_sources import mutated_files


def copied(sample: Path, into: Path) -> Path:
    return Path(shutil.copytree(sample, into / sample.name))


def are_storable(events: list[NewEvent]) -> bool:
    return all(isinstance(json.loads(event.payload), dict) and event.event_id for event in events)


def test_every_event_file_of_a_damaged_v0_store_is_read_or_left_out(
    tmp_path: Path, mutation_seeds: Sequence[int]
) -> None:
    copy = copied(SAMPLES["openhands-v0"], tmp_path)
    for seed in mutation_seeds:
        with mutated_files(copy, seed):
            for stored in openhands_v0.found(copy):
                left_out: Counter[str] = Counter()

                def skip(name: str, reason: str, left_out: Counter[str] = left_out) -> None:
                    assert reason
                    left_out[name] += 1

                files = openhands_v0.event_files(stored)
                openhands_v0.read(stored, files, zone=UTC, note=lambda _name, _what: None)
                events = list(
                    openhands_v0.events(
                        stored, files, times=LocalTimes(UTC), skip=skip, note=lambda _name, _what: None
                    )
                )
                assert are_storable(events), seed
                assert len(events) + left_out.total() == len(files), seed


def test_every_event_file_of_a_damaged_v1_directory_is_read_or_left_out(
    tmp_path: Path, mutation_seeds: Sequence[int]
) -> None:
    copy = copied(SAMPLES["openhands-v1"], tmp_path)
    for seed in mutation_seeds:
        with mutated_files(copy, seed):
            for directory in openhands_v1.directories(copy):
                left_out: set[str] = set()

                def skip(name: str, reason: str, left_out: set[str] = left_out) -> None:
                    assert reason
                    left_out.add(name)

                persisted = openhands_v1.read(directory, zone=UTC, skip=skip)
                assert persisted.metrics.accumulated_cost >= 0, seed
                events = list(openhands_v1.events(directory, zone=UTC, skip=skip))
                assert are_storable(events), seed
                names = {file.name for file in openhands_v1.event_files(directory)}
                assert len(events) + len(left_out & names) == len(names), seed


def test_a_damaged_export_is_whole_or_refused(tmp_path: Path, mutation_seeds: Sequence[int]) -> None:
    copy = copied(SAMPLES["convserver"], tmp_path)
    whole = refused = 0
    for seed in mutation_seeds:
        with mutated_files(copy, seed, is_sealed=bool(seed % 2)):
            try:
                found = list(own.exports(copy))
            except Unreadable:
                found = []
            for exported in found:
                try:
                    events = list(exported.whole())
                except Unreadable:
                    refused += 1
                    continue
                assert are_storable(events), seed
                assert len(events) == exported.event_count, seed
                whole += 1
    assert whole > len(mutation_seeds)
    assert refused > len(mutation_seeds)


def test_an_observation_whose_kind_is_no_text_is_kept_as_it_is(tmp_path: Path) -> None:
    copy = copied(SAMPLES["openhands-v1"], tmp_path)
    (directory,) = openhands_v1.directories(copy)
    for file in (directory / "events").iterdir():
        if '"observation":' in (text := file.read_text()):
            file.write_text(
                json.dumps({**json.loads(text), "observation": {"kind": ["TerminalObservation"]}})
            )
    payloads = [
        json.loads(event.payload) for event in openhands_v1.events(directory, zone=UTC, skip=lambda *_: None)
    ]
    kept = [payload["observation"] for payload in payloads if "observation" in payload]
    assert kept
    assert all(observation == {"kind": ["TerminalObservation"]} for observation in kept)


def test_an_event_that_is_no_text_in_a_journal_of_turns_ends_none(tmp_path: Path) -> None:
    (tmp_path / journals.TURNS).mkdir()
    records = [
        {"event": "submitted", "turn_id": "1", "content": "Hello"},
        {"event": ["completed"], "turn_id": "1"},
    ]
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    (tmp_path / journals.TURNS / "a.jsonl").write_text(text)
    (prompt,) = journals.unfinished_prompts(tmp_path, "a")
    assert prompt["content"] == "Hello"
