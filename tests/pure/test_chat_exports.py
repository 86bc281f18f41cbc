"""The exports of ChatGPT and Claude.ai: every message once, whatever became of its links and of the file."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from conversations.transcripts.sources import archives
from conversations.transcripts.sources.chats import (
    chatgpt,
    chatgpt_content,
    claude_ai,
    exports,
    json_arrays,
    tree,
)
from conversations.transcripts.sources.chats.exports import ExportKind
from conversations.transcripts.sources.chats.tree import ChatPlace
from conversations.transcripts.sources.nodes import (
    Author,
    Failure,
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
from tests.support.data.mutations import mutated_json

DATA = Path(__file__).parents[1] / "data"
CHATGPT = DATA / "chatgpt"
CLAUDE_AI = DATA / "claude-ai"
SAMPLES = {chatgpt.EXPORT: CHATGPT, claude_ai.EXPORT: CLAUDE_AI}
BREAD = "4b1f0000-0000-4000-8000-000000000001"
RECEIPTS = "4b1f0000-0000-4000-8000-000000000002"
ODD = "4b1f0000-0000-4000-8000-000000000003"
PEAS = "7c5e0000-0000-4000-8000-000000000001"
FILES = "7c5e0000-0000-4000-8000-000000000002"
GAPS = "7c5e0000-0000-4000-8000-000000000003"
FILE = "a file is named only"

formats = pytest.mark.parametrize("format", SAMPLES, ids=lambda format: format.name)


def read(format: ExportKind, path: Path) -> dict[str, Transcript]:
    return {each.source_id: each for each in format.transcripts(path)}


def shown(transcript: Transcript) -> list[str]:
    """Return each node as its id, what it says, and in brackets what is noted about it: without the rests."""
    nodes = transcript.nodes()
    return [_line(node) for node in nodes if not node.node_id.startswith("conversation-")]


def _line(node: Node) -> str:
    said = " + ".join(filter(None, map(_part, node.parts))) or f"skipped: {node.skipped}"
    return f"{node.node_id}: {said}" + (f" [{'; '.join(node.noted)}]" if node.noted else "")


def _part(part: Part) -> str:
    match part:
        case Message():
            images = "".join(f" <{image[:15]}>" for image in part.images)
            return f"{part.author} {part.reasoning!r} {part.text!r}{images}"
        case ToolCall():
            return f"{part.tool}({part.arguments}) as {part.call_id} {part.thought!r}"
        case ToolResult():
            images = "".join(f" <{image[:15]}>" for image in part.images)
            error = "error" if part.is_error else "result"
            return f"{error} of {part.call_id} {part.tool!r} {part.text!r}{images}"
        case Record():
            return "" if part.name.startswith("members of ") else f"{part.why} {part.name}"
        case Failure():
            return f"failed {part.text!r}"
        case Instructions() | Summary():
            return part.text


def zipped(directory: Path, to: Path, *, within: str = "") -> Path:
    with ZipFile(to, "w", ZIP_DEFLATED) as packed:
        for file in sorted(directory.rglob("*")):
            if file.is_file():
                packed.write(file, within + file.relative_to(directory).as_posix())
    return to


def test_the_first_answer_continues_a_chatgpt_chat_and_each_other_one_begins_a_branch() -> None:
    found = read(chatgpt.EXPORT, CHATGPT)
    shared = [
        "sys: bookkeeping system text",
        "ctx: bookkeeping user user_editable_context",
        "q1: user '' 'How long does sourdough rise?'",
    ]
    assert shown(found[BREAD]) == [
        *shared,
        "a1: agent '' 'About four hours.'",
        "q2: user '' 'And in winter?'",
    ]
    other = [*shared, "a1b: agent '' 'It depends on the kitchen.'"]
    assert shown(found[f"{BREAD}/a1b"]) == [*other, "q2b: user '' 'On a cold day?'"]
    assert shown(found[f"{BREAD}/q2c"]) == [
        *other,
        "q2c: user '' 'At 18 °C?'",
        "a2c: agent '' 'Eight hours.'",
    ]


def test_a_branch_names_what_it_leaves_and_the_last_one_shown_is_active() -> None:
    found = read(chatgpt.EXPORT, CHATGPT)
    one, other = found[f"{BREAD}/a1b"], found[f"{BREAD}/q2c"]
    assert (one.leaves, one.shared_count) == (Leaving(source_id=BREAD, after="q1"), 3)
    assert (other.leaves, other.shared_count) == (Leaving(source_id=one.source_id, after="a1b"), 4)
    assert [each.is_active for each in (found[BREAD], one, other)] == [False, False, True]
    assert (other.title, other.model) == ("Sourdough", "gpt-5-thinking")
    assert other.created_at is not None
    assert other.created_at.isoformat() == "2026-02-03T09:00:00.250000+00:00"


def test_tools_thoughts_images_and_files_of_chatgpt_are_read() -> None:
    assert shown(read(chatgpt.EXPORT, CHATGPT)[RECEIPTS]) == [
        "t1: user '' '[Image: second.png]\\n\\nAdd these up.\\n\\n[File: prices.csv]' <data:image/png;>"
        f" [an image is not in the export; {FILE}]",
        "t2: agent 'Adding\\nTwo receipts.' ''",
        "t3: python(print(3 + 4)) as t3 ''",
        "t4: result of t3 'python' '7'",
        "t5: web.run({'search_query': [{'q': 'price of rye'}]}) as t5 ''",
        "t6: result of t5 'web.run' 'Rye: 2 a kilo'",
        "t7: result of t5 'web.run' 'Rye\\nhttps://rye.example/\\nRye is cheap.'",
        "t8: bookkeeping assistant reasoning_recap",
        "t9: agent '' 'Seven in all.'",
        "t10: dalle.text2im({'prompt': 'a loaf', 'size': '1024x1024'}) as t10 ''",
        "t11: result of t10 'dalle.text2im' '' <data:image/png;>",
        "t12: error of t10 'dalle.text2im' 'Too many images.'",
        f"t13: user '' 'Thank you.\\n\\n[Recording: sediment://file_00ffaa11]' [{FILE}]",
        "t14: unknown assistant hologram",
        "t15: agent '' 'Here:' + unknown part smell + unknown part",
        "t16: bookkeeping assistant text",
        "t17: result of t17/call 'file_search' 'a late answer'",
    ]


def test_a_node_is_exactly_what_the_export_says() -> None:
    nodes = list(read(chatgpt.EXPORT, CHATGPT)[f"{BREAD}/q2c"].nodes())
    said, rest = nodes[2].parts
    assert said == Message(author=Author.USER, text="How long does sourdough rise?")
    left = {"status": "finished_successfully", "weight": 1.0}
    assert rest == Record(name="members of message", value={"message": left}, why=Kept.BOOKKEEPING)
    assert nodes[2].at is not None
    assert nodes[2].at.isoformat() == "2026-02-03T09:00:01.250000+00:00"


def test_links_that_are_missing_or_go_round_lose_no_message() -> None:
    found = read(chatgpt.EXPORT, CHATGPT)
    assert shown(found[ODD]) == [
        "o1: user '' 'Begin.'",
        "o3: agent '' 'Begun.'",
        "o4: user '' 'After a gap.' [the message before it is missing]",
        "o5: agent '' 'Still here.'",
        "c1: user '' 'Round' [the messages before it go round in a circle]",
        "c2: agent '' 'and round.'",
    ]
    assert shown(found[f"{ODD}/o6"]) == ["o6: user '' 'Begin anew.'", "bad: damaged node"]
    assert shown(found[f"{ODD}/o2"]) == ["o2: agent '' 'Found again.' [the message before it is missing]"]
    assert found[f"{ODD}/o6"].leaves == Leaving(source_id=ODD, after=None)
    assert found[ODD].is_active  # the source names one that is not there


def test_a_conversation_without_messages_is_empty_and_a_damaged_one_is_kept() -> None:
    found = read(chatgpt.EXPORT, CHATGPT)
    empty = [each.source_id for each in found.values() if each.is_empty]
    assert empty == ["4b1f0000-0000-4000-8000-000000000004"]
    damaged = [node for name in found if name.startswith("damaged-") for node in found[name].nodes()]
    assert [(node.parts, node.noted) for node in damaged] == [
        (
            (
                Record(
                    name="conversation",
                    value={"title": "no messages", "id": "4b1f0000-0000-4000-8000-000000000005"},
                    why=Kept.DAMAGED,
                ),
            ),
            ("it has no list of messages",),
        ),
        (
            (Record(name="conversation", value='"not a conversation"', why=Kept.DAMAGED),),
            ("it is not a JSON object",),
        ),
    ]


def test_two_conversations_with_the_same_id_are_both_read() -> None:
    assert shown(read(chatgpt.EXPORT, CHATGPT)[f"{BREAD}#2"]) == [
        "d1: user '' 'The same id.' [another conversation before this one has the same id]"
    ]


def test_claude_ai_messages_follow_those_that_they_name() -> None:
    found = read(claude_ai.EXPORT, CLAUDE_AI)
    assert shown(found[PEAS]) == [
        "h1: user '' 'When do I sow peas?'",
        "a1: agent 'Peas like it cool.' 'In March.' + bookkeeping block token_budget",
    ]
    assert shown(found[f"{PEAS}/a2"]) == [
        "h1: user '' 'When do I sow peas?'",
        "a2: agent '' 'As soon as the soil thaws.'",
        "h2: user '' 'And beans?'",
        "a3: web_search({'query': 'sow beans'}) as toolu_1 'Let me look.'"
        " + result of toolu_1 '' 'Sow in May.'"
        " + repl({'code': '1/0'}) as a3/3 '' + error of a3/3 '' 'division by zero'"
        " + agent '' 'In May.'",
    ]
    assert shown(found[f"{PEAS}/h3"]) == [
        "h3: user '' 'When do I sow lettuce?'",
        "a4: agent '' 'Any time.'",
    ]
    branches = [each for name, each in found.items() if name.startswith(PEAS)]
    assert [each.leaves for each in branches] == [
        None,
        Leaving(source_id=PEAS, after="h1"),
        Leaving(source_id=PEAS, after=None),
    ]
    assert [each.is_active for each in branches] == [False, False, True]


def test_claude_ai_attachments_old_texts_and_strange_messages_are_read() -> None:
    found = read(claude_ai.EXPORT, CLAUDE_AI)
    lines = shown(found[FILES])
    assert lines == [
        "f1: user '' 'a long list\\n\\n[Attachment: plan.pdf]\\nBeds: 4\\n\\n[File: beds.dwg]\\n\\n"
        f"[File: garden.jpg]\\n\\n[File: without a name]' [{FILE}; {FILE}; {FILE}]",
        "f2: agent '' 'Four beds.'",
        "f2#2: agent '' 'Five beds.' [an earlier message has the same uuid]",
        f"{lines[3][:32]}: damaged message",
        f"{lines[4][:32]}: user '' 'Old exports have only this.'",
        "f4: unknown block hologram",
        "f5: unknown message of robot",
        "f6: user '' 'Spoken words.'",
        "f7: bookkeeping human",
    ]
    assert [line.partition(": ")[::2] for line in shown(found[GAPS])] == [
        ("l1", "user '' 'Begin.'"),
        ("l2", "agent '' 'After a gap.' [the message before it is missing]"),
        ("l3", "user '' 'Round' [the messages before it go round in a circle]"),
        ("l4", "agent '' 'and round.'"),
    ]


@formats
def test_a_zip_file_a_directory_and_its_file_say_the_same(format: ExportKind, tmp_path: Path) -> None:
    directory = SAMPLES[format]
    packed = zipped(directory, tmp_path / "export.zip")
    within = zipped(directory, tmp_path / "within.zip", within="export/")
    ways = [directory, packed, within, directory / "conversations.json"]
    assert all(format.is_source(way) for way in ways)
    ids = [
        [(each.source_id, [node.node_id for node in each.nodes()]) for each in format.transcripts(way)]
        for way in ways
    ]
    assert ids == [ids[0]] * 4


def test_images_are_found_in_the_zip_file_and_not_beside_a_single_file(tmp_path: Path) -> None:
    packed = zipped(CHATGPT, tmp_path / "export.zip")
    assert shown(read(chatgpt.EXPORT, packed)[RECEIPTS]) == shown(read(chatgpt.EXPORT, CHATGPT)[RECEIPTS])
    alone = shown(read(chatgpt.EXPORT, CHATGPT / "conversations.json")[RECEIPTS])
    assert alone[10] == (
        "t11: result of t10 'dalle.text2im' '[Image: file-service://file-Lo4f]'"
        " [an image is not in the export]"
    )


def test_an_image_that_is_too_large_or_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(CHATGPT, tmp_path / "export.zip")
    (tmp_path / "conversations.json").write_bytes((CHATGPT / "conversations.json").read_bytes())
    (tmp_path / "file-Kx7receipt1-receipt.png").write_bytes(b"\x89PNG\r\n" + bytes(100))
    (tmp_path / "file-Lo4f.webp").write_bytes(b"notes")
    monkeypatch.setattr(chatgpt_content, "IMAGE_MAX_BYTES", 100)
    lines = shown(read(chatgpt.EXPORT, tmp_path)[RECEIPTS])
    assert lines[0].endswith(f"[an image is larger than 8 MB; an image is not in the export; {FILE}]")
    assert lines[10].endswith("'[Image: file-service://file-Lo4f]' [an image is of an unknown kind]")


@formats
def test_numbered_files_are_one_export(format: ExportKind, tmp_path: Path) -> None:
    chats = json.loads((SAMPLES[format] / "conversations.json").read_bytes())
    for number, chat in enumerate(chats):
        (tmp_path / f"conversations-{number:03}.json").write_text(json.dumps([chat]))
    assert list(read(format, tmp_path)) == list(read(format, SAMPLES[format]))
    assert list(read(format, zipped(tmp_path, tmp_path / "export.zip"))) == list(read(format, tmp_path))


def test_an_export_of_the_other_format_is_not_taken_for_one(tmp_path: Path) -> None:
    assert not chatgpt.EXPORT.is_source(CLAUDE_AI)
    assert not claude_ai.EXPORT.is_source(CHATGPT)
    (tmp_path / "notes.txt").write_text("notes")
    assert not chatgpt.EXPORT.is_source(tmp_path)
    for format, directory in SAMPLES.items():
        zipped(directory, tmp_path / f"{format.name}.zip")
        with ZipFile(tmp_path / f"{format.name}.zip") as packed:
            packed.extractall(tmp_path / "both" / format.name)
    for format, directory in SAMPLES.items():
        assert list(read(format, tmp_path / "both")) == list(read(format, directory))


@formats
def test_what_is_no_export_is_said(format: ExportKind, tmp_path: Path) -> None:
    for content in (b"", b"notes", b"{", b"[1"):
        (tmp_path / "conversations.json").write_bytes(content)
        with pytest.raises(Unreadable):
            list(format.transcripts(tmp_path))
    with pytest.raises(Unreadable, match="does not exist"):
        list(format.transcripts(tmp_path / "nowhere"))


@formats
def test_conversations_before_a_break_are_read_and_the_break_is_said(
    format: ExportKind, tmp_path: Path
) -> None:
    content = (SAMPLES[format] / "conversations.json").read_bytes()
    (tmp_path / "conversations-000.json").write_bytes(content[: len(content) * 3 // 4])
    (tmp_path / "conversations-001.json").write_text('[{"mapping": {}, "chat_messages": [], "uuid": "z"}]')
    found: list[Transcript] = []
    with pytest.raises(Unreadable, match=r"^conversations-000.json breaks off after \d conversations?$"):
        found.extend(format.transcripts(tmp_path))
    assert found[0].source_id in (BREAD, PEAS)
    assert found[-1].is_empty  # of the file after it


def test_a_single_conversation_by_itself_is_read(tmp_path: Path) -> None:
    chats = json.loads((CHATGPT / "conversations.json").read_bytes())
    (tmp_path / "chat.json").write_text(json.dumps(chats[0], indent=2))
    assert list(read(chatgpt.EXPORT, tmp_path / "chat.json")) == [BREAD, f"{BREAD}/a1b", f"{BREAD}/q2c"]


def test_numbers_that_no_program_reads_make_one_conversation_damaged(tmp_path: Path) -> None:
    good = '{"uuid": "good", "x": NaN, "y": 1e999, "chat_messages": []}'
    (tmp_path / "conversations.json").write_text(f'[{{"uuid": {"9" * 5000}}}, {good}, {{"a": nul}}]')
    found = list(claude_ai.EXPORT.transcripts(tmp_path))
    assert [each.source_id[:8] for each in found] == ["damaged-", "good", "damaged-"]


def chain(depth: int) -> list[dict[str, Any]]:
    ids = [f"n{number}" for number in range(depth)]
    mapping = {
        each: {
            "id": each,
            "parent": ids[at - 1] if at else None,
            "children": ids[at + 1 : at + 2],
            "message": {
                "author": {"role": "user"},
                "content": {"content_type": "text", "parts": [each]},
            },
        }
        for at, each in enumerate(ids)
    }
    return [{"id": "deep", "mapping": mapping, "current_node": ids[-1]}]


def test_a_chat_of_three_thousand_messages_is_read(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(chain(3000)))
    [transcript] = chatgpt.EXPORT.transcripts(file)
    assert [node.node_id for node in transcript.nodes()] == [f"n{number}" for number in range(3000)]


def test_a_chat_that_branches_at_each_of_its_messages_is_read() -> None:
    ids = [f"n{number}" for number in range(3000)]
    places = [
        place
        for at, each in enumerate(ids)
        for parent in [ids[at - 1] if at else None]
        for place in (
            *([ChatPlace(node_id=f"other {each}", number=1, value=None, parent=parent)] if at else []),
            ChatPlace(node_id=each, number=1, value=None, parent=parent),
        )
    ]
    branches = tree.branches(places)
    assert len(branches) == 3000
    assert [place.node_id for place in branches[-1].shared] == ids[:-1]


def test_every_message_is_in_one_branch_whatever_the_links_are(subtests: pytest.Subtests) -> None:
    for seed in range(300):
        with subtests.test(seed=seed):
            chance = random.Random(seed)
            ids = [f"n{number}" for number in range(chance.randint(1, 12))]
            places = [
                ChatPlace(
                    node_id=each,
                    number=number,
                    value=None,
                    parent=chance.choice([*ids, None, "gone"]),
                    children=chance.choices([*ids, "gone"], k=chance.randint(0, 3)),
                    is_aside=chance.random() < 0.2,
                )
                for number, each in enumerate(ids, 1)
            ]
            branches = tree.branches(places)
            assert sorted(place.node_id for each in branches for place in each.places) == sorted(ids)
            for number, branch in enumerate(branches):
                assert branch.leaves is None if number == 0 else branch.leaves in branches[:number]
                assert branch.places
                if branch.after is not None:
                    assert branch.shared[-1].node_id == branch.after


@formats
def test_ids_stay_when_an_export_is_read_again(format: ExportKind) -> None:
    def ids() -> list[tuple[str, list[str]]]:
        found = format.transcripts(SAMPLES[format])
        return [(each.source_id, [node.node_id for node in each.nodes()]) for each in found]

    assert ids() == ids()


@formats
def test_mutated_exports_are_read_to_their_last_message(
    format: ExportKind, tmp_path: Path, mutation_seeds: Sequence[int]
) -> None:
    sample = (SAMPLES[format] / "conversations.json").read_bytes()
    file = tmp_path / "conversations.json"
    for seed in mutation_seeds:
        content = mutated_json(sample, seed)
        file.write_bytes(content)
        own = 0
        sources: list[str] = []
        try:
            for each in format.transcripts(file):
                nodes = list(each.nodes())
                assert len(nodes) == each.node_count, seed
                assert all(node.parts or node.skipped for node in nodes), seed
                assert len({node.node_id for node in nodes}) == len(nodes), seed
                added = islice(nodes, each.shared_count, None)
                own += sum(not node.node_id.startswith("conversation-") for node in added)
                sources.append(each.source_id)
        except Unreadable:
            own = -1
        assert len(set(sources)) == len(sources), seed
        if (expected := _message_count(content, format)) is not None:
            assert expected - _bare_roots(content) <= own <= expected, seed


def _bare_roots(content: bytes) -> int:
    """Return how many nodes without a message a file of ChatGPT may have above the first one."""
    found = json.loads(content)
    mappings = (
        [chat.get("mapping") for chat in found if isinstance(chat, dict)] if isinstance(found, list) else []
    )
    nodes = [node for each in mappings if isinstance(each, dict) for node in each.values()]
    return sum(isinstance(node, dict) and node.get("message") is None for node in nodes)


def _message_count(content: bytes, format: ExportKind) -> int | None:
    """Return how many messages a file has, and conversations without any; None if it is no array."""
    try:
        chats = json.loads(content)
    except ValueError:
        return None
    member = "mapping" if format is chatgpt.EXPORT else "chat_messages"
    kind = dict if format is chatgpt.EXPORT else list
    if isinstance(chats, dict):
        chats = [chats]
    if not isinstance(chats, list):
        return None
    lists = [chat.get(member) if isinstance(chat, dict) else None for chat in chats]
    return sum(len(each) if isinstance(each, kind) else 1 for each in lists)


def test_elements_are_the_same_however_the_bytes_arrive() -> None:
    text = '\ufeff \n[ {"a": "]}\\\\", "b": ["\\"[", {}]} , "x,\\u00e9]",12, [], {"c":"é"}\n]\n'.encode()
    wanted = [b'{"a": "]}\\\\", "b": ["\\"[", {}]}', b'"x,\\u00e9]"', b"12", b"[]", '{"c":"é"}'.encode()]
    for size in range(1, len(text) + 1):
        chunks = (text[at : at + size] for at in range(0, len(text), size))
        assert list(json_arrays.items(chunks, "file")) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "breaks off after 0 conversations"),
        (b"\xef\xbb\xbf", "breaks off after 0 conversations"),
        (b"no", "is not an array of conversations in JSON"),
        (b'[{"a": 1}', "breaks off after 0 conversations"),
        (b'[{"a": 1}, {"b": "', "breaks off after 1 conversation"),
        (b'[{"a": 1}, 2] 3', "goes on after its end, after 2 conversations"),
        (b'[{"a": 1}}, 2]', "is damaged after 0 conversations"),
        (b'{"a": 1', "breaks off after 0 conversations"),
    ],
)
def test_a_break_in_an_array_is_said(text: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=f"^file {said}$"):
        list(json_arrays.items([text], "file"))


def test_open_brackets_without_an_end_are_refused_after_the_first_bytes(subtests: pytest.Subtests) -> None:
    def counted(text: bytes) -> Iterator[bytes]:
        for at in range(0, len(text), 64 * 1024):
            taken.append(at)
            yield text[at : at + 64 * 1024]

    for opening in (b"[", b"{", b'{"a":', b"[{", b"[[],"):
        with subtests.test(opening=opening):
            taken = list[int]()
            with pytest.raises(Unreadable, match=r"^file is nested too deeply after 1 conversation$"):
                list(json_arrays.items(counted(b"[1, " + opening * (2_000_000 // len(opening))), "file"))
            assert taken == [0]


def test_blanks_before_and_after_an_array_are_forgotten_as_they_come() -> None:
    scan = json_arrays._Scan("file")
    found = list[bytes]()
    for chunk in (b"\xef\xbb\xbf", *[b" " * 1_000] * 9, b"[1, 2]", *[b"\n" * 1_000] * 9):
        found += scan.take(chunk)
        assert len(scan._text) <= 1_003
    scan.end()
    assert found == [b"1", b"2"]


def test_many_conversations_with_one_id_have_ids_of_their_own_in_little_time() -> None:
    ids = exports._SourceIds()
    assert [ids.take(name) for name in ("a#2", "a", "a", "b", "a", "a#2")] == [
        "a#2",
        "a",
        "a#3",
        "b",
        "a#4",
        "a#2#2",
    ]
    assert len({ids.take("same") for _ in range(50_000)}) == 50_000


def test_an_element_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_arrays, "ITEM_MAX_BYTES", 10_000)
    with pytest.raises(Unreadable, match=r"^file has no end to what follows 1 conversation$"):
        list(json_arrays.items([b'[1,"', *[b"a" * 6_000] * 3, b'"]'], "file"))


def _member(name: str, **facts: int) -> Callable[[ZipFile], None]:
    def write(packed: ZipFile) -> None:
        info = ZipInfo(name)
        for fact, value in facts.items():
            setattr(info, fact, value)
        packed.writestr(info, b"text")

    return write


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (_member("../conversations.json"), "names a file outside of itself"),
        (_member("a/../../b"), "names a file outside of itself"),
        (_member("..\\b"), "names a file outside of itself"),
        (_member("/etc/passwd"), "names a file outside of itself"),
        (_member("C:\\b"), "names a file outside of itself"),
        (_member("a/" * archives.DEPTH_MAX + "b"), "directories in directories"),
        (_member("link", external_attr=(stat.S_IFLNK | 0o777) << 16), "has a link in it"),
    ],
)
def test_a_zip_file_that_no_program_exports_is_refused(
    write: Callable[[ZipFile], None], said: str, tmp_path: Path
) -> None:
    file = zipped(CHATGPT, tmp_path / "export.zip")
    with ZipFile(file, "a") as packed:
        write(packed)
    with pytest.raises(Unreadable, match=said):
        archives.opened(file)
    with pytest.raises(Unreadable, match=said):
        chatgpt.EXPORT.is_source(file)


def test_an_encrypted_zip_file_is_refused(tmp_path: Path) -> None:
    file = zipped(CHATGPT, tmp_path / "export.zip")
    content = bytearray(file.read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 8] |= archives.ENCRYPTED
    file.write_bytes(content)
    with pytest.raises(Unreadable, match="is encrypted"):
        archives.opened(file)


def test_a_zip_file_that_would_unpack_to_far_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "BOMB_MIN_BYTES", 100_000)
    file = tmp_path / "export.zip"
    with ZipFile(file, "w", ZIP_DEFLATED) as packed:
        packed.writestr("small", bytes(100_000))
    assert archives.opened(file).size("small") == 100_000
    with ZipFile(file, "a", ZIP_DEFLATED) as packed:
        packed.writestr("large", bytes(1_000_000))
    with pytest.raises(Unreadable, match="would unpack to far more than it holds: 'large'"):
        archives.opened(file)


def test_links_in_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").symlink_to(CHATGPT / "conversations.json")
    assert list(archives.opened(tmp_path).names()) == []


def test_a_zip_file_that_breaks_off_is_said(tmp_path: Path) -> None:
    file = zipped(CHATGPT, tmp_path / "export.zip")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(Unreadable, match=r"^export.zip is a damaged zip file$"):
        list(chatgpt.EXPORT.transcripts(file))


def test_damaged_zip_files_are_said_or_read(tmp_path: Path) -> None:
    content = zipped(CHATGPT, tmp_path / "export.zip").read_bytes()
    for seed in range(300):
        chance = random.Random(seed)
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        file = tmp_path / "damaged.zip"
        file.write_bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])])
        with suppress(Unreadable):
            for each in chatgpt.EXPORT.transcripts(file):
                assert len(list(each.nodes())) == each.node_count, seed
