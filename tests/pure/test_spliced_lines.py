"""Lines as crashes leave them: every whole record is read in each format, and the rest is kept raw."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.transcripts import jsonl
from conversations.transcripts.sources import lines, own, splices
from conversations.transcripts.sources.formats import FORMATS
from conversations.transcripts.sources.hermes import journals
from conversations.transcripts.sources.lines import FoundRecord
from conversations.transcripts.sources.nodes import Kept, Node, Record
from tests.support.data.import_samples import SAMPLES

MARK = "\N{BYTE ORDER MARK}".encode()
SESSION = "5f0e1c9a-0000-4000-8000-000000000001"


def of_claude_code(number: int) -> dict[str, object]:
    said = {"role": "user", "content": [{"type": "text", "text": f"Größe {number} {{\"a\": \\ 'b'}}"}]}
    link = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
    at = f"2026-02-03T09:00:{number:02}.000Z"
    return {**link, "sessionId": SESSION, "type": "user", "message": said, "timestamp": at, "n": -1.5e3}


def of_codex(number: int) -> dict[str, object]:
    said = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": f"Größe {number} [{{"}],
    }
    return {"timestamp": f"2026-02-03T09:00:{number:02}.000Z", "type": "response_item", "payload": said}


def of_older_codex(number: int) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Größe {number}"}]}


def of_journal(number: int) -> dict[str, object]:
    return {"event": "token", "seq": number, "payload": {"text": f"Größe {number} ", "of": [{"a": None}]}}


def texts(record: object) -> str:
    return json.dumps(record, ensure_ascii=False)


ROWS = {
    "claude-code": of_claude_code,
    "codex": of_codex,
    "codex, the older layout": of_older_codex,
}


class Written:
    """A file of records and what is left of others; knows which are whole."""

    def __init__(self, format: str) -> None:
        self.row = ROWS[format]
        self.content = b""
        self.whole: list[str] = []
        self.rests: list[bytes] = []
        self._number = 0

    def add(self, kind: str, share: float) -> None:
        text = texts(self.row(self._number)).encode()
        at = 1 + int(share * (len(text) - 2))
        if kind == "whole":
            self.content += text
            self.whole.append(f"Größe {self._number}")
        elif kind == "beginning":
            self.content += text[:at]
            self.rests.append(text[:at])
        elif kind == "end":  # what comes before it is lost, and a hole is there instead
            self.content += b"\0" * 7 + text[at:]
            self.rests.append(text[at:])
        else:
            self.content += {"nul": b"\0" * 5, "mark": MARK, "lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}[kind]
        self._number += 1


KINDS = ("whole", "whole", "beginning", "end", "nul", "mark", "lf", "crlf", "cr")
parts = st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 1)), max_size=12)


def nodes_of(format: str, file: Path) -> list[Node]:
    (transcript,) = FORMATS[format.partition(",")[0]].transcripts(file)
    nodes = list(transcript.nodes())
    assert len(nodes) == transcript.node_count
    assert len({node.node_id for node in nodes}) == len(nodes)
    assert all(node.parts or node.skipped for node in nodes)
    return nodes


def damaged(node: Node) -> bytes:
    """Return the bytes of a damaged record; none of another."""
    for part in node.parts:
        if isinstance(part, Record) and part.why is Kept.DAMAGED:
            value = part.value
            return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
    return b""


@pytest.mark.parametrize("format", ROWS)
def test_every_whole_record_of_a_damaged_file_is_read_and_the_rest_kept(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "FRESH_S", 0.0)
    file = tmp_path / f"rollout-2026-02-03T09-00-00-{SESSION}.jsonl"

    @settings(max_examples=150, derandomize=True, deadline=None)
    @given(parts)
    def check(pieces: Sequence[tuple[str, float]]) -> None:
        written = Written(format)
        for kind, share in [("whole", 0.0), *pieces]:
            written.add(kind, share)
        file.write_bytes(written.content)
        nodes = nodes_of(format, file)
        said = " ".join(repr(node.parts) for node in nodes if not damaged(node))
        assert [text for text in written.whole if text not in said] == []
        kept = b"\n".join(map(damaged, nodes))
        assert [rest for rest in written.rests if rest.strip() not in kept] == []

    check()


@pytest.mark.parametrize("format", ROWS)
def test_a_record_is_read_wherever_the_one_before_it_was_cut(format: str) -> None:
    row = ROWS[format]
    before, after = texts(row(1)).encode(), texts(row(2)).encode()
    for at in range(1, len(before)):
        text = before[:at] + after
        found = [text[each.start : each.end] for each in splices.objects(text)]
        assert found[-1] == after, at


def test_a_journal_is_read_past_what_a_crash_left(tmp_path: Path) -> None:
    folder = tmp_path / journals.RUNS / "s"
    folder.mkdir(parents=True)
    rows = [json.dumps(of_journal(number), ensure_ascii=False).encode() for number in range(4)]
    (folder / "r.jsonl").write_bytes(MARK + rows[0] + rows[1][:-9] + rows[2] + b"\n\0\0\0" + rows[3] + b"\n")
    run = journals.run(tmp_path, "s", "r")
    assert run is not None
    assert [row["content"] for row in run.rows] == ["Größe 0 Größe 2 Größe 3 "]
    assert run.damaged == 1


def read(path: Path, *, is_growing: bool = False) -> list[FoundRecord]:
    return list(lines.records(path, lambda record: "sessionId" in record, is_growing=is_growing))


def test_a_file_in_utf_16_is_read(tmp_path: Path, subtests: pytest.Subtests) -> None:
    content = "".join(texts(of_claude_code(number)) + "\r\n" for number in range(3))
    file = tmp_path / "a.jsonl"
    for encoding, mark in (
        ("utf-16-le", "\ufeff"),
        ("utf-16-be", "\ufeff"),
        ("utf-16-le", ""),
        ("utf-16-be", ""),
    ):
        with subtests.test(encoding=encoding, mark=bool(mark)):
            file.write_bytes((mark + content).encode(encoding))
            found = read(file)
            assert [each.value for each in found] == [of_claude_code(number) for number in range(3)]
            places = [(each.offset, len(each.text), hash(each.text)) for each in found]
            assert list(lines.texts_at(file, places)) == [each.text for each in found]


def test_half_a_record_at_the_end_waits_and_the_whole_one_before_it_does_not(tmp_path: Path) -> None:
    first, second = (texts(of_claude_code(number)).encode() for number in (1, 2))
    file = tmp_path / "a.jsonl"
    file.write_bytes(first + second[:-40])
    whole, half = read(file, is_growing=True)
    assert (whole.value, half.value, half.skipped) == (of_claude_code(1), None, lines.HALF)
    file.write_bytes(first + second)
    assert [each.value for each in read(file, is_growing=True)] == [of_claude_code(1), of_claude_code(2)]


def test_nul_bytes_are_counted_and_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\0" * 4096 + b"\n" + b"\0" * 4096 + b'{"sessionId": 1}\n' + MARK + b"\n")
    hole, record = read(file)
    assert (hole.skipped, record.value, record.noted[-1]) == (lines.ONLY_NULS, {"sessionId": 1}, lines.NULS)


def test_a_session_goes_on_behind_records_that_its_program_could_not_read(tmp_path: Path) -> None:
    lines = [json.dumps(of_claude_code(number)) for number in range(6)]
    # The program read up to the second line, twice: what it wrote then follows that one.
    after = json.dumps({**of_claude_code(4), "parentUuid": "u1"})
    glued = json.dumps({**of_claude_code(3), "parentUuid": "u1"})
    edited = json.dumps({**of_claude_code(5), "parentUuid": "u1"})
    file = tmp_path / "session.jsonl"
    file.write_text("\n".join([*lines[:2], lines[2][:9] + lines[2] + glued, after, edited, ""]))
    found = list(FORMATS["claude-code"].transcripts(file))
    told = [[node.node_id for node in each.nodes() if node.node_id.startswith("u")] for each in found]
    assert told == [["u0", "u1", "u2", "u3", "u4"], ["u0", "u1", "u5"]]


def test_a_session_begins_with_a_record_that_its_program_could_not_read(tmp_path: Path) -> None:
    first, second, third = (of_claude_code(number) for number in range(3))
    anew = {**of_claude_code(3), "parentUuid": None}
    file = tmp_path / "session.jsonl"
    # The program read none of the first line, so the second record follows nothing; the user went back once.
    rest = [{**second, "parentUuid": None}, third, anew]
    told = [json.dumps(first)[:9] + json.dumps(first), *map(json.dumps, rest), ""]
    file.write_text("\n".join(told))
    found = list(FORMATS["claude-code"].transcripts(file))
    ids = [[node.node_id for node in each.nodes() if node.node_id.startswith("u")] for each in found]
    assert ids == [["u0", "u1", "u2"], ["u3"]]


def test_a_part_of_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b'{"sessionId": 1, "message": {"type": "text"}, "at": "2\0\0", "usage": {"a": {"b": 1}}}\n'
    )
    (found,) = read(file)
    assert found.value is None
    assert found.text == file.read_bytes().rstrip()


HOSTILE = (
    b"{",
    b"[",
    b'{"',
    b'{"a":',
    b'{"a":[',
    b'{"aaa',
    b'{"a":"b",',
    b'{"a":{"b":1},',
    b'{"a":"\\{',
    b'{"a":"\0',
    b"{ ",
    b"}",
    b"\0{",
    b'{"a":1}}',
)


def test_hostile_lines_take_time_in_proportion_to_their_length(subtests: pytest.Subtests) -> None:
    def spent(text: bytes) -> float:
        def once() -> float:
            began = time.thread_time()
            for _ in splices.objects(text):
                pass
            return time.thread_time() - began

        return min(once() for _ in range(2))

    for unit in HOSTILE:
        with subtests.test(unit=unit):
            short, long = (spent(unit * (size // len(unit))) for size in (8_000, 32_000))
            assert long < 0.05 + 12 * short


def rows() -> Iterator[bytes]:
    yield from (texts(of_claude_code(number)).encode() for number in range(3))


def test_a_line_has_a_bounded_number_of_places_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splices, "STARTS_MAX", 2)
    assert len(list(splices.objects(b"".join(rows())))) == 2


def test_an_export_of_this_server_is_read_whatever_a_shell_put_around_its_lines(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    first, _, rest = (SAMPLES["convserver"] / "helper.jsonl").read_bytes().partition(b"\n")
    head = json.dumps(json.loads(first) | {"version": jsonl.VERSION}).encode()
    end = json.dumps({"type": jsonl.END, "sha256": sha256(rest).hexdigest()}, separators=(",", ":"))
    content = head + b"\n" + rest + end.encode() + b"\n"
    file = tmp_path / "helper.jsonl"

    def events() -> list[str]:
        (found,) = own.exports(file)
        return [event.payload for event in found.whole()]

    file.write_bytes(content)
    expected = events()
    around = {
        "byte order mark": MARK + content,
        "carriage returns": content.replace(b"\n", b"\r\n"),
        "NUL bytes": content + b"\0" * 512,
        "blank lines": content + b"\n \n",
    }
    for name, changed in around.items():
        with subtests.test(name):
            file.write_bytes(changed)
            assert events() == expected
