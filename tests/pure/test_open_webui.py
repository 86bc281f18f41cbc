"""The exports of Open WebUI: every message once, whichever release wrote it down, and in whatever state."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from conversations.transcripts.sources.chats import chatgpt, claude_ai, details, open_webui
from conversations.transcripts.sources.nodes import (
    Author,
    Failure,
    Kept,
    Leaving,
    Message,
    Node,
    Part,
    Record,
    ToolCall,
    ToolResult,
    Transcript,
    Unreadable,
)
from tests.pure.test_chat_exports import CHATGPT, CLAUDE_AI, shown, zipped
from tests.support.data.mutations import mutated_json

SAMPLES = Path(__file__).parents[1] / "data" / "open-webui"
FILE = SAMPLES / "chat-export-1770109999000.json"
PEAS, WEATHER, DRAWING, BEDS, GAPS, OLD = (f"9d2a0000-0000-4000-8000-{number:012}" for number in range(1, 7))


def read(path: Path = SAMPLES) -> dict[str, Transcript]:
    return {each.source_id: each for each in open_webui.EXPORT.transcripts(path)}


def nodes(source_id: str) -> dict[str, Node]:
    return {node.node_id: node for node in read()[source_id].nodes()}


def said(node: Node) -> tuple[Part, ...]:
    """Return the parts of a node without the last one, what is left of its members."""
    last = node.parts[-1]
    return node.parts[:-1] if isinstance(last, Record) and last.name == "members of message" else node.parts


def left(node: Node) -> Any:
    last = node.parts[-1]
    return last.value if isinstance(last, Record) and last.name == "members of message" else {}


def answered(content: str, **members: Any) -> list[Any]:
    """Return the parts of an answer, whose id is `a`, in a chat by itself."""
    message = {"role": "assistant", "content": content, **members}
    value = {"id": "c", "chat": {"history": {"messages": {"a": message}, "currentId": "a"}}}
    chat = open_webui._chat(value)
    assert chat is not None
    return list(open_webui._Reader().read(chat.places[0]).parts)


def test_the_first_answer_continues_a_chat_and_each_other_one_begins_a_branch() -> None:
    found = read()
    other = [
        "q1: user '' 'How deep do I sow peas?'",
        "a1b: agent '' 'Five centimetres.' + agent '' 'Five centimetres, two inches.' + bookkeeping details",
    ]
    assert shown(found[PEAS]) == [other[0], "a1: agent '' 'Two inches.' + bookkeeping details"]
    assert shown(found[f"{PEAS}/a1b"]) == [*other, "q2: user '' 'And beans?'", "a2: agent '' 'The same.'"]
    assert shown(found[f"{PEAS}/q2b"]) == [
        *other,
        "q2b: user '' 'And in clay?'",
        "a2b: agent '' 'Less deep.' + bookkeeping details",
    ]


def test_a_branch_names_what_it_leaves_and_the_one_that_was_shown_is_active() -> None:
    found = read()
    one, other = found[f"{PEAS}/a1b"], found[f"{PEAS}/q2b"]
    assert (one.leaves, one.shared_count) == (Leaving(source_id=PEAS, after="q1"), 1)
    assert (other.leaves, other.shared_count) == (Leaving(source_id=one.source_id, after="a1b"), 2)
    assert [each.is_active for each in (found[PEAS], one, other)] == [False, False, True]
    assert (found[PEAS].title, found[PEAS].model, other.model) == ("Sowing peas", "llama3.2:3b", "qwen3:8b")
    assert other.created_at is not None
    assert other.created_at.isoformat() == "2026-02-03T09:00:00+00:00"


def test_a_node_is_exactly_what_the_export_says() -> None:
    node = nodes(PEAS)["a1"]
    assert node.place == f"{FILE.name}, conversation 1, message 2"
    assert node.at is not None
    assert node.at.isoformat() == "2026-02-03T09:00:02+00:00"
    said, kept, left = node.parts
    assert said == Message(author=Author.AGENT, text="Two inches.")
    assert isinstance(kept, Record)
    assert isinstance(kept.value, dict)
    assert list(kept.value) == ["usage", "statusHistory", "sources"]
    assert kept.value["usage"] == {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}
    members = {"model": "llama3.2:3b", "modelName": "llama3.2:3b", "modelIdx": 0}
    assert left == Record(name="members of message", value=members, why=Kept.BOOKKEEPING)


def test_details_in_an_answer_are_reasoning_calls_and_results() -> None:
    node = nodes(WEATHER)["w2"]
    assert [each.get("details") for each in left(node)["content"] if each] == [
        {"summary": "Thought for 3 seconds", "duration": "3"},
        {"summary": "Tool Executed"},
        {"summary": "Tool Executed"},
    ]
    assert said(node) == (
        ToolCall(
            call_id="call_1",
            tool="get_weather",
            arguments={"city": "Lisbon"},
            thought="I will ask.",
            reasoning="Look it up.\n\nIs 3 > 2?",
        ),
        ToolResult(call_id="call_1", text='{"c": 21, "sky": "<clear>"}'),
        ToolCall(call_id="call_2", tool="get_time", arguments={"zone": "Europe/Lisbon"}),
        ToolResult(call_id="call_2", text="12:05", images=("data:image/png;base64,iVBORw0KGgo=",)),
        Message(author=Author.AGENT, text="It is 21 degrees."),
    )


def test_older_releases_and_answers_that_were_cut_off_are_read() -> None:
    assert shown(read()[WEATHER])[5:] == [
        "w6: agent 'Old & unescaped <b>.' '' + search(rye bread) as call_3 ''"
        " + result of call_3 '' '{\"count\": 1}'"
        " + code_interpreter({'language': 'python', 'code': 'print(\"</b>\")'}) as w6/5 ''"
        " + result of w6/5 '' '</b>\\n\\n7' + sleep({}) as w6/7 'Seven.' [the answer was cut off]",
        "w7: user '' 'And then?'",
        "w8: agent 'Raw thoughts.' 'Nothing.'",
        "w9: user '' 'Once more.'",
        'w10: agent \'\' \'<details type="reasoning" done="false">\\n<summary>Thinking…</summary>\\n'
        "> not closed'",
    ]


def test_details_that_are_quoted_or_the_authors_own_are_words() -> None:
    [message] = nodes(WEATHER)["w4"].parts
    assert isinstance(message, Message)
    chats = json.loads(FILE.read_bytes())
    assert message.text == chats[1]["chat"]["history"]["messages"]["w4"]["content"]


def test_output_items_say_what_the_details_say() -> None:
    image = "data:image/png;base64,iVBORw0KGgo="
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    parts = said(nodes(DRAWING)["o2"])
    assert parts[:6] == (
        ToolCall(
            call_id="call_9",
            tool="draw",
            arguments={"what": "a pea"},
            thought="One moment.",
            reasoning="Ask the tool.",
        ),
        ToolResult(call_id="call_9", text="drawn", images=(image, "https://pics.example/pea.png")),
        ToolCall(call_id="call_10", tool="note", arguments="not an object"),
        ToolResult(call_id="call_10", text="noted"),
        ToolCall(call_id="ci_1", tool="code_interpreter", arguments={"language": "python", "code": "3 + 4"}),
        ToolResult(call_id="ci_1", text="7"),
    )
    assert isinstance(parts[6], Record)
    assert (parts[6].name, parts[6].why) == ("redacted_thinking", Kept.BOOKKEEPING)
    assert parts[7] == Record(name="block web_search_call", value=item, why=Kept.UNKNOWN)
    assert parts[8] == Message(author=Author.AGENT, text="Here it is.")
    assert [each.name for each in parts[9:] if isinstance(each, Record)] == ["block smell"]


def test_an_answer_whose_content_differs_from_its_output_keeps_both() -> None:
    node = nodes(DRAWING)["o4"]
    assert said(node) == (
        Message(author=Author.AGENT, text="As it was."),
        Record(name="content", value="Edited by hand.", why=Kept.BOOKKEEPING),
    )
    assert node.noted == ("its content and its output say different things: the output is shown",)


def test_errors_and_members_that_are_not_known_are_kept() -> None:
    node = nodes(DRAWING)["o6"]
    result, failure, unknown = said(node)
    assert result == ToolResult(call_id="o6/0", text='{"ok": true}')
    assert failure == Failure("The model is gone.")
    assert left(node)["error"] == {"content": "The model is gone."}
    assert unknown == Record(name="members", value={"hologram": {"of": "pea"}}, why=Kept.UNKNOWN)


def test_files_images_parts_and_strange_messages_are_read() -> None:
    named, missing = "a file is named only", "an image is not in the export"
    assert shown(read()[BEDS]) == [
        "f1: user '' 'What is in these?\\n\\n[Image: beds.png]\\n\\n[Attachment: plan.txt]\\nBeds: 4\\n\\n"
        "[File: beds.dwg]\\n\\n[Collection: Garden books]\\n\\n[Image: shed.png]\\n\\n"
        "[Web search results: without a name]' <data:image/png;> <https://pics.ex>"
        f" [{missing}; {named}; {named}; {missing}; {named}]",
        "f2: agent '' 'Four beds.' <https://pics.ex>",
        "f3: user '' 'In parts:' <data:image/png;> + unknown block odour",
        "f4: bookkeeping message of assistant",
        "f5: bookkeeping message of user",
        "f6: failed 'Out of memory'",
        "f7: bookkeeping message of system",
        "f8: unknown message of robot",
        "f9: unknown block",
    ]


def test_links_that_are_missing_or_go_round_lose_no_message() -> None:
    found = read()
    only = "[only the list of the branch that was shown has it]"
    assert shown(found[GAPS]) == [
        "l1: user '' 'Begin.'",
        f"late: agent '' 'Only listed.' {only}",
        f"later: user '' 'Me too.' {only}",
    ]
    assert shown(found[f"{GAPS}/l2"]) == [
        "l1: user '' 'Begin.'",
        "l2: agent '' 'After a gap.' [the message before it is missing]",
        "l3: user '' 'Round' [the messages before it go round in a circle]",
        "l4: agent '' 'and round.'",
    ]
    assert shown(found[f"{GAPS}/l5"]) == [
        "l5: user '' 'Begin anew.'",
        "bad: damaged message",
        "none: skipped: it has no message",
    ]
    assert found[GAPS].is_active  # the source names one that is not there


def test_old_exports_without_ids_trees_or_wrapping_are_read() -> None:
    found = read()
    lines = shown(found[OLD])
    assert [line.partition(": ")[2] for line in lines] == [
        "user '' 'Hello.'",
        "agent '' 'Hello!' + bookkeeping details",
        "user '' 'No id.'",
        "agent '' 'The same id.' [an earlier message has the same id]",
        "damaged message",
        "agent '' 'Good bye.'",
    ]
    assert shown(found["older"]) == ["v1: user '' 'Are you there?'", "v2: agent '' 'Yes.'"]
    assert found["older"].created_at is not None
    assert found["older"].created_at.isoformat() == "2023-11-03T08:26:40.123000+00:00"


def test_chats_that_are_empty_damaged_or_have_the_same_id_are_told_apart() -> None:
    found = read()
    assert [name for name, each in found.items() if each.is_empty] == ["9d2a0000-0000-4000-8000-000000000008"]
    damaged = [node for name in found if name.startswith("damaged-") for node in found[name].nodes()]
    assert [node.noted for node in damaged] == [
        ("it has no list of messages",),
        ("it is not a JSON object",),
    ]
    assert shown(found[f"{PEAS}#2"]) == [
        "d1: user '' 'The same id.' [another conversation before this one has the same id]"
    ]


def test_a_zip_file_a_directory_a_file_and_a_chat_by_itself_say_the_same(tmp_path: Path) -> None:
    packed = zipped(SAMPLES, tmp_path / "export.zip")
    assert list(read(packed)) == list(read(FILE)) == list(read(SAMPLES))
    alone = tmp_path / "chat-Sowing peas.json"
    alone.write_text(json.dumps(json.loads(FILE.read_bytes())[0]))
    assert list(read(alone)) == [PEAS, f"{PEAS}/a1b", f"{PEAS}/q2b"]
    assert all(map(open_webui.EXPORT.is_source, (SAMPLES, packed, FILE, alone)))


def test_exports_of_other_programs_are_not_taken_for_one(tmp_path: Path) -> None:
    assert not open_webui.EXPORT.is_source(CHATGPT)
    assert not open_webui.EXPORT.is_source(CLAUDE_AI)
    assert not chatgpt.EXPORT.is_source(SAMPLES)
    assert not claude_ai.EXPORT.is_source(SAMPLES)
    other = tmp_path / "talk.json"
    for content in ("[]", '[{"messages": [{"role": "user", "content": "Hello."}]}]', '{"chat": "none"}'):
        other.write_text(content)
        assert not open_webui.EXPORT.is_source(other)


def test_ids_stay_when_an_export_is_read_again() -> None:
    def ids() -> list[tuple[str, list[str]]]:
        return [(each.source_id, [node.node_id for node in each.nodes()]) for each in read().values()]

    assert ids() == ids()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('```\n<details type="reasoning">\n</details>\n', None),
        ('~~~\n```\n<details type="reasoning">\n</details>\n~~~ \n', None),
        ('a <details type="reasoning">\nb\n</details>', None),
        ('<details type="other">\nb\n</details>', None),
        ("<details type=reasoning>\nb\n</details>", None),
        ("<think>never ended", None),
        ('```\ncode\n```\n<details type="reasoning">\n> b\n</details>after', "```\ncode\n```|after"),
        ('<details type="reasoning">\n> </details>\n> b\n</details>\n\nafter', "after"),
        ('<details type="reasoning">\n</details><details type="reasoning">\n</details>\n', ""),
    ],
)
def test_only_blocks_of_the_program_are_taken_out_of_an_answer(content: str, text: str | None) -> None:
    said = [part.text for part in answered(content) if isinstance(part, Message) and part.text]
    assert "|".join(said) == (content.strip("\n") if text is None else text)


def test_arguments_are_an_object_or_the_text_that_they_are(subtests: pytest.Subtests) -> None:
    for given, arguments in [
        ('{"a": 1}', {"a": 1}),
        (json.dumps('{"a": 1}'), {"a": 1}),
        (json.dumps(json.dumps('{"a": 1}')), {"a": 1}),
        ("", ""),
        ("[1]", "[1]"),
        ('"words"', "words"),
        ('{"a": ', '{"a": '),
        ('{"a": NaN}', {"a": None}),
        ('"\\ud800"', "\ufffd"),
        ("[" * 2000, "[" * 2000),
        ("9" * 5000, "9" * 5000),
    ]:
        with subtests.test(given=given, arguments=arguments):
            block = f'<details type="tool_calls" name="t" arguments="{html.escape(given)}">\n</details>'
            [call] = answered(block)
            assert isinstance(call, ToolCall)
            assert call.arguments == arguments
            [same] = answered("", output=[{"type": "function_call", "name": "t", "arguments": given}])
            assert isinstance(same, ToolCall)
            assert same.arguments == arguments


def test_an_answer_of_many_blocks_and_quotations_is_read_in_time() -> None:
    block = '<details type="tool_calls" done="true" name="t" result="1">\n</details>\n'
    assert sum(isinstance(part, ToolCall) for part in answered(block * 2000)) == 2000
    opening = '<details type="reasoning">\n'
    for never in (
        f"{opening}> </details>\n" * 20_000,
        opening + "> " + "</details>" * 50_000,
        opening + " " * 100_000,
        '<details a="' * 20_000,
        '<details a="\n' * 20_000,
    ):
        assert list(details.of_text(never, "a")) == [{"type": "text", "text": never.strip("\n")}]
    [thought] = details.of_text(opening + " " * 100_000 + "</details>", "a")
    assert thought == {"type": "thinking", "thinking": ""}


def test_two_calls_with_the_same_id_keep_their_own_arguments() -> None:
    items = [{"type": "function_call", "call_id": "c", "arguments": text} for text in ('{"a": 1}', "b")]
    assert [part.arguments for part in answered("", output=items)] == [{"a": 1}, "b"]


def test_mutated_exports_are_read_to_their_last_message(
    tmp_path: Path, mutation_seeds: Sequence[int]
) -> None:
    sample = FILE.read_bytes()
    file = tmp_path / "export.json"
    for seed in mutation_seeds:
        content = mutated_json(sample, seed)
        file.write_bytes(content)
        own, sources = 0, []
        try:
            for each in open_webui.EXPORT.transcripts(file):
                found = list(each.nodes())
                assert len(found) == each.node_count, seed
                assert all(node.parts or node.skipped for node in found), seed
                assert len({node.node_id for node in found}) == len(found), seed
                added = islice(found, each.shared_count, None)
                own += sum(not node.node_id.startswith("conversation-") for node in added)
                sources.append(each.source_id)
        except Unreadable:
            own = -1
        assert len(set(sources)) == len(sources), seed
        if (expected := _message_count(content)) is not None:
            assert own == expected, seed


def _message_count(content: bytes) -> int | None:
    """Return how many messages a file has, and chats without any list of them; None if it is no JSON."""
    try:
        chats = json.loads(content)
    except ValueError:
        return None
    chats = [chats] if isinstance(chats, dict) else chats
    return sum(map(_messages_of, chats)) if isinstance(chats, list) else None


def _messages_of(value: Any) -> int:
    is_wrapped = isinstance(value, dict) and isinstance(value.get("chat"), dict)
    chat = value["chat"] if is_wrapped else value
    history = chat.get("history") if isinstance(chat, dict) else None
    by_id = history.get("messages") if isinstance(history, dict) else None
    listed = chat.get("messages") if isinstance(chat, dict) else None
    if isinstance(by_id, dict):
        return len(by_id) + sum(1 for _ in _only_listed(listed, by_id))
    if isinstance(listed, list) and (is_wrapped or isinstance(chat.get("models"), list)):
        return len(listed)
    return 1


def _only_listed(listed: Any, by_id: dict[str, Any]) -> Iterator[Any]:
    known = {name.replace("\0", "\ufffd").replace("\ud800", "\ufffd") for name in by_id}
    for message in listed if isinstance(listed, list) else []:
        message_id = message.get("id") if isinstance(message, dict) else None
        named = message_id if isinstance(message_id, str) and 0 < len(message_id) <= 200 else ""
        stored = named.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
        if not by_id or (stored and stored not in known):
            yield message
