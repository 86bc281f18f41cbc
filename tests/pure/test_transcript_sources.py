"""Readers of other programs' conversations: every record is yielded once, whatever became of the file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from conversations.confined.processes import checked_by
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.formats import FORMATS, guessed
from conversations.transcripts.sources.nodes import Node, Unreadable
from sessions_app.imports import ways
from tests.support.data.mutations import mutated

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


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file count as one that is being written to, however new a checkout is."""
    monkeypatch.setattr(lines, "FRESH_S", 0.0)


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


class Ended(Exception):
    """Nobody wants the rest."""


def ended() -> Iterator[None]:
    raise Ended
    yield


def zipped_members(count: int) -> bytes:
    packed = io.BytesIO()
    with ZipFile(packed, "w") as file:
        for number in range(count):
            file.writestr(f"{number}.jsonl", b"{}\n")
    return packed.getvalue()


HOSTILE = {
    "an array without an end": ("x.json", b"[[" + b"[[]]," * 100_000),
    "an element of many values": ("x.json", b'[{"a":[' + b"1," * 100_000 + b"1]}]"),
    "an element of many open brackets in strings": ("x.json", b'["' + b"[" * 1_000_000 + b'"]'),
    "blank lines": ("rollout-x.jsonl", b"\n" * 100_000),
    "a line of many values": ("rollout-x.jsonl", b'{"a":[' + b"1," * 100_000 + b"1]}"),
    "many members of a zip file": ("x.zip", zipped_members(50)),
}


def test_looking_for_conversations_can_be_ended_anywhere(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (case, (name, content)) in enumerate(HOSTILE.items()):
        place = tmp_path / str(number)
        place.mkdir()
        (place / name).write_bytes(content)
        for passed in (0, 10):
            ending = partial(next, chain(repeat(None, passed), ended()))
            with subtests.test(case, passed=passed), checked_by(ending), pytest.raises(Ended):
                ways.guessed(place / name)


def test_a_text_that_is_decoded_in_steps_says_what_one_decoded_at_once_says(
    subtests: pytest.Subtests,
) -> None:
    many = "1," * lines.QUICK_MAX_VALUES
    for rest in ('"\\u00e9\\n", 1e3, -0', "{}, [[]], null", '{"a": {"b": [true]}}', "NaN", "01", '"', "{,}"):
        text = f'{{"all": [{many}{rest}]}}'
        with subtests.test(rest):
            try:
                expected: object = json.loads(text)
            except ValueError:
                with pytest.raises(lines.Damaged, match=r"^it is not valid JSON$"):
                    lines.parsed(text)
            else:
                assert repr(lines.parsed(text)) == repr(expected)
    assert lines.parsed(f"[{many}{'[' * 99}{']' * 99}]")


def test_a_record_of_more_values_than_memory_should_hold_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "VALUES_MAX", 1_000)
    assert lines.record(b'{"a": [%s1]}' % (b"{}," * 997))
    with pytest.raises(lines.Damaged, match=r"^it has more than 1,000 values$"):
        lines.record(b'{"a": [%s1]}' % (b"{}," * 1_000))


def test_arguments_of_more_values_than_memory_should_hold_stay_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "VALUES_MAX", 1_000)
    assert lines.arguments('{"a": [%s1]}' % ("{}," * 997)) == {"a": [{}] * 997 + [1]}
    many = '{"a": [%s1]}' % ("{}," * 1_000)
    assert lines.arguments(many) == many


@pytest.mark.parametrize("format", OF_LINES)
def test_mutated_files_are_read_to_their_last_record(
    format: str, tmp_path: Path, mutation_seeds: Sequence[int]
) -> None:
    files = sorted(file for file in SAMPLES[format].rglob("*.jsonl"))
    for seed in mutation_seeds:
        file = files[seed % len(files)]
        content = mutated(file.read_bytes(), seed)
        copy = tmp_path / file.name
        copy.write_bytes(content)
        own: set[str] = set()
        sources = []
        for each in FORMATS[format].transcripts(copy):
            nodes = list(each.nodes())
            assert len(nodes) == each.node_count, seed
            assert all(node.parts or node.skipped for node in nodes), seed
            assert len({node.node_id for node in nodes}) == len(nodes), seed
            own.update(line_of(node) for node in islice(nodes, each.shared_count, None))
            sources.append(each.source_id)
        assert len(set(sources)) == len(sources), seed
        assert len(own) == sum(1 for line in content.split(b"\n") if line.strip()), seed


def line_of(node: Node) -> str:
    """Return the line of a node; one that is damaged may have several."""
    return node.place.partition(",")[0]


def assigned(file: Path) -> dict[str, str]:
    """Return the conversation to which each line of a Claude Code session belongs."""
    return {
        node.node_id: each.source_id
        for each in FORMATS["claude-code"].transcripts(file)
        for node in islice(each.nodes(), each.shared_count, None)
    }


def said(uuid: str, parent: str | None, **members: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", **members}


def answered(uuid: str, parent: str, message: str) -> dict[str, Any]:
    content = [{"type": "text", "text": uuid}]
    return {**said(uuid, parent, message={"id": message, "content": content}), "type": "assistant"}


CALLS_AT_ONCE = [
    said("p1", None, message={"content": "one"}),
    answered("a1", "p1", "m1"),
    answered("a2", "a1", "m1"),
    said("r2", "a2", message={"content": [{"type": "tool_result", "tool_use_id": "2"}]}),
    said("r1", "a1", message={"content": [{"type": "tool_result", "tool_use_id": "1"}]}),
    answered("b1", "r1", "m2"),
    said("p2", "r2", message={"content": "two"}),
    answered("c1", "p2", "m3"),
]


def test_what_belongs_to_a_branch_does_not_change_as_a_session_grows(tmp_path: Path) -> None:
    sample = next(SAMPLES["claude-code"].glob("3f1c9a52*.jsonl")).read_text().splitlines()[:-1]
    for content in (sample, [json.dumps(line) for line in CALLS_AT_ONCE]):
        file = tmp_path / "s.jsonl"
        before: dict[str, str] = {}
        for count in range(1, len(content) + 1):
            file.write_text("\n".join(content[:count]) + "\n")
            now = assigned(file)
            assert before.items() <= now.items()
            before = now
    assert {before[each] for each in ("p1", "a1", "a2", "r2", "r1", "b1")} == {"s"}
    assert before["p2"] == before["c1"] == "s/p2"


@pytest.mark.parametrize("format", OF_LINES)
def test_half_a_line_at_the_end_waits_while_its_file_is_written_to(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = next(file for file in sorted(SAMPLES[format].rglob("*.jsonl")) if len(file.read_bytes()) > 2000)
    file = tmp_path / source.name
    file.write_bytes(source.read_bytes().rstrip(b"\n") + b'\n{"type":"user","ses')
    monkeypatch.setattr(lines, "FRESH_S", 60.0)
    (last,) = {
        node.skipped
        for each in FORMATS[format].transcripts(file)
        for node in list(each.nodes())[-1:]
        if node.skipped
    }
    assert "missing" in last


def test_the_end_of_half_a_line_that_comes_while_it_is_read_is_no_line(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_bytes(b'{"whole": 1}\n{"ha')
    read = lines.lines(file)
    assert [next(read).is_whole, next(read).is_whole] == [True, False]
    with file.open("ab") as appended:
        appended.write(b'lf": 1}\n{"next": 1}\n')
    assert not list(read)
    assert [line.text for line in lines.lines(file)] == [b'{"whole": 1}', b'{"half": 1}', b'{"next": 1}']


@pytest.mark.parametrize("format", OF_LINES)
def test_half_a_line_that_gets_its_end_while_it_is_read_is_left_for_later(
    format: str, tmp_path: Path
) -> None:
    source = max(SAMPLES[format].rglob("*.jsonl"), key=lambda file: file.stat().st_size)
    whole = source.read_bytes()
    file = tmp_path / source.name
    file.write_bytes(whole[:-5])
    found = list(FORMATS[format].transcripts(file, is_growing=True))
    file.write_bytes(whole)
    assert any("missing" in node.skipped for each in found for node in each.nodes())


@pytest.mark.parametrize("format", OF_LINES)
def test_a_file_that_changes_while_it_is_read_is_said(format: str, tmp_path: Path) -> None:
    source = max(SAMPLES[format].rglob("*.jsonl"), key=lambda file: file.stat().st_size)
    file = tmp_path / source.name
    file.write_bytes(source.read_bytes())
    found = list(FORMATS[format].transcripts(file))
    file.write_bytes(source.read_bytes().replace(b"a", b"b"))
    with pytest.raises(Unreadable, match="changed while it was read"):
        list(found[0].nodes())
