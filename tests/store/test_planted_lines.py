"""Marks planted into every member of the samples of line formats: an import loses none of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.support.data.import_samples import SAMPLES
from tests.support.data.planted_marks import Marks, Path_

pytestmark = pytest.mark.one_engine

LEFT_OUT = frozenset({"toolUseResult", "replacement_history"})
"""What readers leave out, because the file has it once more; the report counts it."""

IN_NO_CONVERSATION = ("9b9b9b9b-*.jsonl", "*-00000000000e.jsonl")
"""The samples in which nobody says anything: the report counts their lines."""
TEA = "7d1f3c0a52e84f6c9b1a0c4d5e6f7a01"


def is_left_out(path: Path_, _value: object) -> bool:
    return not LEFT_OUT.isdisjoint(path)


def plant(directory: Path, marks: Marks) -> None:
    """Plant marks into every line of the files below a directory."""
    for file in sorted(directory.rglob("*.jsonl")):
        planted = [_line(line, marks) for line in file.read_text().splitlines()]
        file.write_text("\n".join(planted) + "\n")


def _line(line: str, marks: Marks) -> str:
    try:
        return json.dumps(marks.planted(json.loads(line)))
    except ValueError:
        return line


RICH_RESULT = [
    {"type": "text", "text": "seen", "citations": [{"cited_text": "a"}]},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWJt", "of": "b"}},
    {"type": "tool_reference", "tool_name": "c"},
    {"type": "search_result", "title": "d", "content": [{"type": "text", "text": "e"}]},
    {"type": "resource", "resource": {"uri": "file:///f", "text": "g"}},
]
RICH_ANSWER = [
    {"type": "thinking", "thinking": "", "signature": "h", "summaries": [{"summary": "i"}]},
    {"type": "text", "text": "words", "citations": [{"cited_text": "j"}]},
    {"type": "server_tool_use", "id": "t0", "name": "web", "input": {"query": "k"}, "caller": {"type": "l"}},
    {"type": "web_search_tool_result", "tool_use_id": "t0", "content": [{"type": "found", "url": "m"}]},
    {"type": "tool_use", "id": "t1", "name": "Look", "input": {"at": "n"}, "caller": {"type": "o"}},
]
RICH_CLAUDE_CODE: tuple[dict[str, Any], ...] = (
    {"message": {"role": "user", "content": "begin", "of": "p"}, "type": "user"},
    {"message": {"role": "assistant", "id": "m1", "content": RICH_ANSWER}, "type": "assistant"},
    {
        "message": {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": RICH_RESULT, "is_error": "q"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": {"text": "r"},
                    "structured_content": {},
                },
                {"type": "tool_result", "tool_use_id": "t3", "content": [{"type": "document", "title": "s"}]},
            ],
        },
        "type": "user",
    },
    {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "t", "origin": {"by": "u"}}},
    {"type": "user", "isCompactSummary": True, "message": {"role": "user", "content": [{"text": "v"}]}},
)
RICH_CODEX: tuple[dict[str, Any], ...] = (
    {"type": "session_meta", "payload": {"id": "s", "base_instructions": {"text": "a", "of": "b"}}},
    {
        "role": "user",
        "type": "message",
        "content": [{"type": "input_image", "image_url": {"url": "https://c"}}],
    },
    {
        "role": "assistant",
        "type": "message",
        "content": [
            {"type": "output_text", "text": "d", "annotations": [{"type": "url_citation", "url": "e"}]},
            {"type": "refusal", "refusal": "f"},
        ],
    },
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "g"}, {"type": "h"}],
        "content": ["i"],
    },
    {"type": "function_call", "name": "j", "namespace": "k", "arguments": "{}", "call_id": "c1", "meta": {}},
    {"type": "function_call_output", "call_id": "c1", "output": {"content": "l", "success": False}},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "m"}]},
    {"type": "local_shell_call", "call_id": "c2", "action": {"command": ["n"]}, "status": "completed"},
    {"type": "custom_tool_call", "call_id": "c3", "name": "o", "input": "p"},
    {"type": "tool_search_call", "call_id": "c4", "arguments": {"query": "q"}},
    {"type": "tool_search_output", "call_id": "c4", "tools": [{"name": "r"}]},
    {"type": "web_search_call", "action": {"query": "s"}, "status": "failed"},
    {"type": "image_generation_call", "revised_prompt": "t", "result": "aWJt", "status": "completed"},
    {"type": "compacted", "payload": {"message": "u", "window": 1}},
)


def rich_samples(format: str, directory: Path) -> Path:
    """Write a session with all that is known inside of messages and results, and more."""
    rows: list[dict[str, object]] = []
    for number, row in enumerate(RICH_CLAUDE_CODE if format == "claude-code" else RICH_CODEX):
        at = f"2026-02-03T09:00:{number:02}.000Z"
        if format == "claude-code":
            rows.append({"uuid": f"u{number}", "sessionId": "s", "timestamp": at, **row})
        else:
            wrapped = row if "payload" in row else {"type": "response_item", "payload": row}
            rows.append({"timestamp": at, **wrapped})
    directory.mkdir()
    (directory / "rollout-2026-02-03T09-00-00-s.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return directory


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_a_mark_in_any_member_is_found_after_the_import(format: str, alice: User, tmp_path: Path) -> None:
    copy = rich_samples(format, tmp_path / "rich")
    shutil.copytree(SAMPLES[format], copy / "samples")
    for file in IN_NO_CONVERSATION:
        next(iter(copy.rglob(file)), copy / file).unlink(missing_ok=True)
    marks = Marks(is_whole=is_left_out)
    plant(copy, marks)
    assert marks.lost(format, copy, alice) == []


def test_a_mark_in_any_member_of_a_store_of_openhands_v0_is_found(alice: User, tmp_path: Path) -> None:
    source = SAMPLES["openhands-v0"] / "sessions" / TEA
    marks = Marks()
    for file in [*source.glob("events/[0-9].json"), source / "metadata.json"]:
        copy = tmp_path / "sessions" / TEA / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(json.dumps(marks.planted(json.loads(file.read_text()))))
    assert marks.lost("openhands-v0", tmp_path, alice) == []
