"""Sessions of Codex: each line of every layout becomes what it says, once, and none is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from conversations.events import Metrics
from conversations.transcripts.sources import codex, lines
from conversations.transcripts.sources import packed as packed_files
from conversations.transcripts.sources.codex import records
from conversations.transcripts.sources.nodes import (
    Author,
    Instructions,
    Kept,
    Leaving,
    Message,
    Node,
    Part,
    Record,
    Summary,
    ToolCall,
    ToolResult,
    Transcript,
    Unreadable,
)
from tests.support.data.mutations import mutated

SESSIONS = Path(__file__).parents[1] / "data/codex/sessions"
BEGINNING = "019c2200-0000-7000-8000-0000000000"
SHOP, OLD, SUB_AGENT, FORK, EMPTY = (f"{BEGINNING}0{last}" for last in "abcfe")
TAKEN_BACK = f"{FORK}_{BEGINNING}bb"
PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file count as one that is being written to, however new a checkout is."""
    monkeypatch.setattr(lines, "FRESH_S", 0.0)


def found(path: Path = SESSIONS) -> dict[str, Transcript]:
    return {each.source_id: each for each in codex.transcripts(path)}


def file_of(source_id: str) -> Path:
    return next(SESSIONS.rglob(f"*-{source_id}.jsonl"))


def name_of(part: Part) -> Part | str:
    return f"{part.why}: {part.name}" if isinstance(part, Record) else part


def said(transcript: Transcript) -> dict[int, list[Part | str]]:
    """Return the parts by the number of their line, each record as why it is kept and its name.

    What no part carries is not among them.
    """
    return {
        int(node.place.split()[1]): [name_of(part) for part in node.parts if not is_rest(part)]
        for node in transcript.nodes()
    }


def is_rest(part: Part) -> bool:
    return isinstance(part, Record) and part.name.startswith("members of ")


def user(text: str, *images: str) -> Message:
    return Message(author=Author.USER, text=text, images=images)


def agent(text: str, reasoning: str = "") -> Message:
    return Message(author=Author.AGENT, text=text, reasoning=reasoning)


def written(directory: Path, *rows: object, name: str = f"rollout-2026-02-03T09-00-00-{SHOP}.jsonl") -> Path:
    file = directory / name
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def item(**payload: object) -> dict[str, object]:
    return {"timestamp": "2026-02-03T09:00:00.000Z", "type": "response_item", "payload": payload}


def head(**payload: object) -> dict[str, object]:
    return {"timestamp": "2026-02-03T09:00:00.000Z", "type": "session_meta", "payload": payload}


def only(file: Path) -> Transcript:
    (transcript,) = codex.transcripts(file)
    return transcript


def parts_of(directory: Path, *rows: object) -> list[Part]:
    nodes = only(written(directory, *rows)).nodes()
    return [part for node in nodes for part in node.parts if not is_rest(part)]


def test_a_session_becomes_what_its_lines_say() -> None:
    assert said(found()[SHOP]) == {
        1: [Instructions("You are an agent in a shop."), "bookkeeping: session_meta"],
        2: ["bookkeeping: response_item message"],
        3: ["bookkeeping: response_item message"],
        4: ["bookkeeping: event_msg task_started"],
        5: [user("Why is the total wrong?", PNG)],
        6: ["bookkeeping: event_msg user_message"],
        7: ["bookkeeping: turn_context"],
        8: ["bookkeeping: event_msg agent_reasoning"],
        9: [agent("", "**Reading the sums**")],
        10: ["bookkeeping: response_item reasoning"],
        11: [agent("I will look.")],
        12: ["bookkeeping: event_msg agent_message"],
        13: [
            ToolCall(
                call_id="call_1",
                tool="shell_command",
                arguments={"command": "grep -n round total.py", "workdir": "/home/ana/shop"},
            )
        ],
        14: [ToolResult(call_id="call_1", text="Exit code: 0\nOutput:\n8: return round(x, 2)")],
        15: [ToolCall(call_id="call_2", tool="mcp__books.search", arguments="{broken")],
        16: [ToolResult(call_id="call_2", text="arguments are no JSON", is_error=True)],
        17: [
            ToolCall(call_id="call_3", tool="apply_patch", arguments="*** Begin Patch\n*** End Patch\n"),
        ],
        18: ["bookkeeping: event_msg patch_apply_end"],
        19: [
            ToolResult(
                call_id="call_3",
                text='{"output":"No such file","metadata":{"exit_code":1,"duration_seconds":0.1}}',
                is_error=True,
            )
        ],
        20: [
            ToolCall(
                call_id="call_4",
                tool="local_shell",
                arguments={"type": "exec", "command": ["ls"], "timeout_ms": 1000},
            )
        ],
        21: [ToolResult(call_id="call_4", text="total.py", images=(PNG,))],
        22: [
            ToolCall(
                call_id="ws_1", tool="web_search", arguments={"type": "search", "query": "bankers rounding"}
            ),
            ToolResult(call_id="ws_1", tool="web_search", text="completed"),
        ],
        23: [
            ToolCall(
                call_id="6efbcc2d63a41ba9a8f4b8886d0ba120-1",
                tool="web_search",
                arguments={"type": "open_page", "url": "https://example.org/"},
            )
        ],
        24: [
            ToolCall(call_id="ig_1", tool="image_generation", arguments={"prompt": "a receipt"}),
            ToolResult(call_id="ig_1", tool="image_generation", text="completed", images=(PNG,)),
        ],
        25: [ToolCall(call_id="call_5", tool="tool_search", arguments={"query": "mail", "limit": 2})],
        26: [ToolResult(call_id="call_5", tool="tool_search", text='[{"type": "function", "name": "send"}]')],
        27: ["bookkeeping: response_item ghost_snapshot"],
        28: ["bookkeeping: event_msg token_count"],
        29: ["bookkeeping: event_msg token_count"],
        30: [agent("Use Decimal.")],
        31: ["bookkeeping: event_msg turn_aborted"],
        32: ["bookkeeping: response_item message"],
        33: ["bookkeeping: event_msg thread_rolled_back"],
        34: ["bookkeeping: injected", user("And the tests?")],
        35: ["bookkeeping: response_item message"],
        36: [Summary("The total is rounded twice.")],
        37: ["bookkeeping: event_msg context_compacted"],
        38: ["bookkeeping: response_item message"],
        39: ["bookkeeping: compacted"],
        40: ["bookkeeping: response_item compaction"],
        41: ["bookkeeping: world_state"],
        42: [agent("Seven tests.")],
        43: ["bookkeeping: response_item agent_message"],
        44: [agent("Seven."), "unknown: block hologram"],
        45: ["unknown: message"],
        46: ["bookkeeping: event_msg token_count"],
        47: ["bookkeeping: event_msg thread_name_updated"],
        48: ["unknown: event_msg teleported"],
        49: ["unknown: response_item smell"],
        50: ["unknown: postcard"],
        51: ["bookkeeping: event_msg task_complete"],
        52: ["damaged: line"],
    }


def test_what_is_known_of_a_session_is_told() -> None:
    shop = found()[SHOP]
    assert (shop.title, shop.model, shop.directory) == ("A wrong total", "gpt-5.2-codex", "/home/ana/shop")
    assert (shop.repository, shop.branch) == ("ana/shop", "main")
    assert shop.created_at == datetime(2026, 2, 3, 9, tzinfo=UTC)
    assert shop.metrics == Metrics(accumulated_cost=0.0, prompt_tokens=3000, completion_tokens=250)
    assert (shop.parent_id, shop.leaves, shop.is_empty) == (None, None, False)


def test_the_older_layout_becomes_the_same() -> None:
    old = found()[OLD]
    assert {number: parts for number, parts in said(old).items() if parts != ["bookkeeping: state"]} == {
        1: ["bookkeeping: session_meta"],
        3: ["bookkeeping: response_item message"],
        5: [
            user(
                "# Context from my IDE setup:\n\n## Active file: total.py\n\n"
                "## My request for Codex:\nList the files.\n"
            )
        ],
        7: [agent("", "Listing.")],
        8: [ToolCall(call_id="call_1", tool="shell", arguments={"command": ["ls"]})],
        9: [
            ToolResult(
                call_id="call_1",
                text='{"output":"total.py\\n","metadata":{"exit_code":0,"duration_seconds":0.0}}',
            )
        ],
        11: [agent("One file: total.py.")],
        12: [agent("One file: total.py.")],
    }
    assert (old.title, old.directory, old.repository) == ("List the files.", "/home/ana/old", "ana/shop")
    assert old.created_at == datetime(2026, 2, 3, 8, tzinfo=UTC)


def test_a_sub_agent_is_below_the_session_that_started_it() -> None:
    sub_agent = found()[SUB_AGENT]
    assert (sub_agent.parent_id, sub_agent.leaves) == (SHOP, None)
    assert sub_agent.directory == "/home/ana/shop"  # not that of the session that it copied
    assert said(sub_agent)[6] == [user("Count the tests.")]


def test_what_a_copied_session_used_does_not_count_twice() -> None:
    assert found()[SUB_AGENT].metrics == Metrics(
        accumulated_cost=0.0, prompt_tokens=400, completion_tokens=20
    )


def test_a_fork_leaves_the_session_that_it_began_with() -> None:
    fork, again = found()[FORK], found()[TAKEN_BACK]
    assert fork.leaves == Leaving(source_id=SHOP, after=None)
    assert again.leaves == Leaving(source_id=FORK, after=None)
    assert next(iter(fork.nodes())).noted == (records.ELSEWHERE,)
    assert (fork.is_active, fork.repository) == (False, None)


def test_what_a_turns_items_repeat_appears_once() -> None:
    assert said(found()[FORK]) == {
        1: ["bookkeeping: session_meta"],
        2: [user("Then change it.")],
        3: ["bookkeeping: event_msg item_completed"],
        4: [ToolCall(call_id="call_9", tool="exec", arguments="await tools.exec_command({cmd: 'make'})")],
        5: ["bookkeeping: event_msg item_completed"],
        6: [ToolResult(call_id="call_9", text="done")],
        7: ["bookkeeping: token_usage_record"],
        8: ["bookkeeping: event_msg collab_agent_spawn_end"],
        9: [agent("Changed.")],
        10: ["bookkeeping: event_msg item_completed"],
    }


def test_a_session_in_which_nobody_speaks_is_empty() -> None:
    assert {each.source_id for each in found().values() if each.is_empty} == {EMPTY}


def test_sessions_come_before_those_that_refer_to_them() -> None:
    assert list(found()) == [OLD, SHOP, SUB_AGENT, FORK, TAKEN_BACK, EMPTY]


def test_a_kept_line_is_kept_as_it_was() -> None:
    lines = file_of(SHOP).read_bytes().split(b"\n")
    nodes = list(found()[SHOP].nodes())
    (meta,) = (part for part in nodes[0].parts if isinstance(part, Record))
    told = json.loads(lines[0])
    del told["payload"]["base_instructions"]  # they are the system prompt
    assert meta.value == told
    for node, line in zip(nodes[1:-1], lines[1:], strict=False):
        for part in node.parts:
            if isinstance(part, Record) and not part.name.startswith(
                ("block", "injected", "message", "members of ")
            ):
                assert part.value == json.loads(line)
    assert nodes[-1].parts == (Record(name="line", value=lines[-1].decode(), why=Kept.DAMAGED),)


def test_what_is_left_out_of_a_summary_is_noted() -> None:
    noted = {node.place: node.noted for node in found()[SHOP].nodes() if node.noted}
    assert noted == {
        "line 36": ("replacement_history left out",),
        "line 39": ("a summary is encrypted",),
        "line 52": ("it is not valid JSON",),
    }


def test_half_a_line_waits_while_the_file_grows() -> None:
    (growing,) = codex.transcripts(file_of(SHOP), is_growing=True)
    *_, last = growing.nodes()
    assert (last.parts, last.skipped) == ((), "its end is still missing")


def test_ids_stay_when_a_file_grows(tmp_path: Path) -> None:
    def ids(file: Path) -> list[str]:
        return [node.node_id for node in only(file).nodes()]

    whole = ids(file_of(OLD))
    lines = file_of(OLD).read_bytes().splitlines(keepends=True)
    shorter = tmp_path / file_of(OLD).name
    for count in range(len(lines)):
        shorter.write_bytes(b"".join(lines[:count]))
        assert ids(shorter) == whole[:count]
    assert len(set(whole)) == len(whole)


@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n<cwd>/</cwd>\n</environment_context>",
        "\n<user_instructions>\nUse tabs.\n</user_instructions>",
        "# AGENTS.md instructions\n\n<INSTRUCTIONS>\n</INSTRUCTIONS>",
        "<turn_aborted>\n</turn_aborted>",
        "<user_shell_command>\n<command>\nls\n</command>\n</user_shell_command>",
        '<codex_internal_context source="goal">\n</codex_internal_context>',
    ],
)
def test_what_the_program_says_for_the_user_is_bookkeeping(tmp_path: Path, text: str) -> None:
    row = item(type="message", role="user", content=[{"type": "input_text", "text": text}])
    assert parts_of(tmp_path, row) == [Record(name="response_item message", value=row, why=Kept.BOOKKEEPING)]


def test_a_user_may_write_about_tags(tmp_path: Path) -> None:
    text = "What is <environment_context>?"
    assert parts_of(tmp_path, item(type="message", role="user", content=text)) == [user(text)]


def test_the_kind_that_the_program_tells_counts_more_than_the_words(tmp_path: Path) -> None:
    told = {"content_item_kinds": ["user.text"]}
    row = item(
        type="message",
        role="user",
        content=[{"type": "input_text", "text": "<skill> is a tag"}],
        internal_chat_message_metadata_passthrough=told,
    )
    assert parts_of(tmp_path, row) == [user("<skill> is a tag")]


@pytest.mark.parametrize(
    ("url", "repository"),
    [
        ("git@github.com:ana/shop.git", "ana/shop"),
        ("https://github.com/ana/shop", "ana/shop"),
        ("https://ana:word@github.com/ana/shop.js.git/", "ana/shop.js"),
        ("ssh://git@github.com:22/ana/shop.git", "ana/shop"),
        ("https://git.example.org/a/b/c.git", None),
        ("/srv/git/shop.git", None),
        ("", None),
        (None, None),
    ],
)
def test_a_repository_is_its_owner_and_name(url: str | None, repository: str | None) -> None:
    assert records.repository({"git": {"repository_url": url}}) == repository


def test_a_session_has_the_title_that_its_first_request_has(tmp_path: Path) -> None:
    rows = [item(type="message", role="user", content=text) for text in ("Hello", f"{records.REQUEST}\nBye")]
    assert only(written(tmp_path, *rows)).title is None
    assert only(written(tmp_path, *reversed(rows))).title == "Bye"


def test_counts_that_begin_anew_in_a_fork_are_its_own(tmp_path: Path) -> None:
    def used(at: str, tokens: int) -> dict[str, object]:
        total = {"input_tokens": tokens, "output_tokens": 1}
        return {
            "timestamp": at,
            "type": "event_msg",
            "payload": {"type": "token_count", "info": {"total_token_usage": total}},
        }

    meta = head(id="x", forked_from_id="y", timestamp="2026-02-03T10:00:00Z")
    before, after = used("2026-02-03T09:59:00Z", 100), used("2026-02-03T10:01:00Z", 30)
    assert only(written(tmp_path, meta, before, after)).metrics.prompt_tokens == 30
    more = used("2026-02-03T10:02:00Z", 150)
    assert only(written(tmp_path, meta, before, more)).metrics.prompt_tokens == 50


BOMB = b"%s\n" % (b" " * packed_files.PIECE_BYTES) * (packed_files.BOMB_MIN_BYTES // packed_files.PIECE_BYTES)
"""A little more than may be packed as tightly as this."""


def packed(file: Path, *, frames: int = 1) -> bytes:
    content = file.read_bytes()
    step = len(content) // frames + 1
    parts = (content[at : at + step] for at in range(0, len(content), step))
    return b"".join(map(zstandard.compress, parts))


@pytest.mark.parametrize("frames", [1, 3])
def test_a_packed_session_is_read_as_it_was_before(tmp_path: Path, frames: int) -> None:
    for source_id in (SHOP, OLD, SUB_AGENT, FORK):
        file = file_of(source_id)
        (tmp_path / f"{file.name}.zst").write_bytes(packed(file, frames=frames))
    assert codex.is_source(tmp_path)
    for source_id, transcript in found(tmp_path).items():
        (plain,) = codex.transcripts(file_of(source_id))
        assert list(transcript.nodes()) == list(plain.nodes())
        assert replace(transcript, nodes=list) == replace(plain, nodes=list)
    assert set(found(tmp_path)) == {SHOP, OLD, SUB_AGENT, FORK}


def test_half_a_line_at_the_end_of_a_packed_session_waits_for_nothing(tmp_path: Path) -> None:
    file = file_of(SHOP)
    (tmp_path / f"{file.name}.zst").write_bytes(packed(file))
    for is_growing in (False, True):
        (session,) = codex.transcripts(tmp_path, is_growing=is_growing)
        *_, last = session.nodes()
        assert (last.skipped, bool(last.parts)) == ("", True)


def test_a_session_that_goes_on_is_read_from_its_unpacked_file(tmp_path: Path) -> None:
    name = f"rollout-2026-02-03T09-00-00-{SHOP}.jsonl"
    plain = written(tmp_path, head(id=SHOP), name=name)
    (tmp_path / f"{name}.zst").write_bytes(packed(plain))
    written(tmp_path, head(id=SHOP), item(type="message", role="user", content="Go on"), name=name)
    (session,) = codex.transcripts(tmp_path)
    assert session.node_count == 2


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda content: content[:-20], "its end is missing"),
        (lambda content: b"x" + content, "not packed with Zstandard"),
        (lambda content: content[:20] + b"\xff" * 40 + content[60:], "is damaged"),
        (lambda _content: zstandard.compress(BOMB), "far more than it holds"),
    ],
)
def test_a_packed_session_that_cannot_be_unpacked_is_said_to_be_so(
    tmp_path: Path, damaged: Callable[[bytes], bytes], why: str
) -> None:
    file = file_of(SHOP)
    (tmp_path / f"{file.name}.zst").write_bytes(damaged(packed(file)))
    assert codex.is_source(tmp_path)
    (session,) = codex.transcripts(tmp_path)
    assert session.source_id == SHOP
    with pytest.raises(Unreadable, match=why):
        list(session.nodes())


def test_other_files_beside_sessions_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path, {"id": SHOP, "thread_name": "A wrong total"}, name="session_index.jsonl")
    written(tmp_path, {"session_id": SHOP, "ts": 1, "text": "Hello"}, name="history.jsonl")
    assert not codex.is_source(tmp_path)
    assert list(codex.transcripts(tmp_path)) == []


@pytest.mark.parametrize("content", [b"", b"\n", b"\0" * 50, b"nothing\n"])
def test_a_session_that_is_destroyed_is_accounted_for(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / file_of(SHOP).name
    file.write_bytes(content)
    (destroyed,) = codex.transcripts(tmp_path)
    assert destroyed.is_empty
    assert destroyed.node_count == len(list(destroyed.nodes())) == int(bool(content.strip()))


def test_mutated_sessions_are_read_to_their_last_line(tmp_path: Path, mutation_seeds: Sequence[int]) -> None:
    files = sorted(SESSIONS.rglob("*.jsonl"))
    for seed in mutation_seeds:
        file = files[seed % len(files)]
        content = mutated(file.read_bytes(), seed)
        copy = tmp_path / file.name
        copy.write_bytes(content)
        (transcript,) = codex.transcripts(copy)
        nodes: list[Node] = list(transcript.nodes())
        assert len(nodes) == transcript.node_count, seed
        read = {node.place.partition(",")[0] for node in nodes}
        assert len(read) == sum(1 for line in content.split(b"\n") if line.strip()), seed
        assert all(node.parts or node.skipped for node in nodes), seed
        assert len({node.node_id for node in nodes}) == len(nodes), seed
