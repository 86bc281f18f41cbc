"""Readers of other programs' conversations: every record is yielded once, whatever became of the file."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from conversations.transcripts.sources.formats import FORMATS, guessed
from conversations.transcripts.sources.nodes import Unreadable
from tests.mutations import mutated

DATA = Path(__file__).parents[1] / "data"
SAMPLES = {
    "claude-code": DATA / "claude-code/projects/-home-ana-shop",
    "codex": DATA / "codex/sessions",
    "chatgpt": DATA / "chatgpt",
    "claude-ai": DATA / "claude-ai",
    "open-webui": DATA / "open-webui",
    "hermes-webui": DATA / "hermes-webui/webui",
}
OF_LINES = ("claude-code", "codex")
MUTATED = 1000


@pytest.mark.parametrize("format", SAMPLES)
def test_a_format_is_recognised(format: str) -> None:
    assert guessed(SAMPLES[format]).name == format


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_not_there_or_something_else_is_said(format: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        list(FORMATS[format].transcripts(tmp_path / "nowhere"))
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(Unreadable):
        guessed(tmp_path)


@pytest.mark.parametrize("format", FORMATS)
def test_ids_stay_when_a_source_is_read_again(format: str) -> None:
    def ids() -> list[tuple[str, list[str]]]:
        found = FORMATS[format].transcripts(SAMPLES[format])
        return [(each.source_id, [node.node_id for node in each.nodes()]) for each in found]

    assert ids() == ids()
    assert all(len(set(nodes)) == len(nodes) for _, nodes in ids())


@pytest.mark.parametrize("format", OF_LINES)
def test_mutated_files_are_read_to_their_last_record(format: str, tmp_path: Path) -> None:
    files = sorted(file for file in SAMPLES[format].rglob("*.jsonl"))
    for seed in range(MUTATED):
        file = files[seed % len(files)]
        content = mutated(file.read_bytes(), seed)
        copy = tmp_path / file.name
        copy.write_bytes(content)
        own = 0
        sources = []
        for each in FORMATS[format].transcripts(copy):
            nodes = list(each.nodes())
            assert len(nodes) == each.node_count, seed
            assert all(node.parts or node.skipped for node in nodes), seed
            assert len({node.node_id for node in nodes}) == len(nodes), seed
            own += len(list(islice(nodes, each.shared_count, None)))
            sources.append(each.source_id)
        assert len(set(sources)) == len(sources), seed
        assert own == sum(1 for line in content.split(b"\n") if line.strip()), seed
