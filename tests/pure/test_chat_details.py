"""What exports of chats say beside plain words: citations, charts, summaries, cut answers, failures, tags."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.transcripts.sources.chats import chatgpt, claude_ai, open_webui
from conversations.transcripts.sources.chats.chatgpt_citations import Citations
from conversations.transcripts.sources.nodes import (
    Author,
    Failure,
    Message,
    Node,
    Part,
    Record,
    ToolCall,
    ToolResult,
    Transcript,
)

PNG = b"\x89PNG\r\n\x1a\n"


def read(format: ModuleType, chat: Any, directory: Path) -> list[Transcript]:
    file = directory / "conversations.json"
    file.write_text(json.dumps([chat]))
    return list(format.EXPORT.transcripts(file))


def said(node: Node) -> list[Part]:
    return [part for part in node.parts if not isinstance(part, Record)]


def kept(node: Node) -> str:
    return json.dumps([part.value for part in node.parts if isinstance(part, Record)], ensure_ascii=False)


def answer(*texts: str, **metadata: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT that is one answer."""
    content = {"content_type": "text", "parts": list(texts)}
    message = {"id": "a", "author": {"role": "assistant"}, "content": content, "metadata": metadata}
    return {"id": "x", "mapping": {"a": {"id": "a", "parent": None, "message": message, "children": []}}}


def shown(text: str, **metadata: Any) -> str:
    return Citations(metadata).shown(text)


def test_marks_of_citations_are_shown_as_links_or_left_out(subtests: pytest.Subtests) -> None:
    mark = "\ue200cite\ue202turn0search1\ue201"
    source = {"title": "Rye [and] wheat", "url": "https://rye.example/a_(b)"}
    link = r"[Rye \[and\] wheat](https://rye.example/a_%28b%29)"
    listed = [{"matched_text": mark, "items": [source, source]}]
    found = [{"entries": [{**source, "ref_id": {"turn_index": 0, "ref_type": "search", "ref_index": 1}}]}]
    groups = {"search_result_groups": found}
    named = {"content_references": [{"matched_text": mark, "type": "file", "name": "plan.pdf"}]}
    unsafe = {"content_references": [{"matched_text": mark, "url": "javascript:alert(1)", "title": "No"}]}
    old = {"start_ix": 4, "end_ix": 14, "metadata": {"title": "Rye", "url": "https://rye.example/"}}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        (f"Rye. {mark}", f"Rye. ({link})", {"content_references": listed}),
        (f"Rye.{mark} More.", f"Rye. ({link}) More.", groups),
        (f"Rye {mark}, too.", "Rye, too.", {}),
        (f"Rye {mark}", "Rye (plan.pdf)", named),
        (f"Rye {mark}", "Rye (No)", unsafe),
        ("Rye 【1†source】.", "Rye ([Rye](https://rye.example/)).", {"citations": [old]}),
        ("Rye 【1†source】.", "Rye 【1†source】.", {}),
        ('In \ue200entity\ue202["city","Lisbon","capital"]\ue201.', "In Lisbon.", {}),
        ("See \ue200url\ue202it\ue202turn0search1\ue201.", f"See it ({link}).", groups),
        ("\ue203Rye\ue204 is cheap.\ue200cite\ue202turn9news9\ue201", "Rye is cheap.", {}),
        ("It was cut \ue200cite\ue202turn0se", "It was cut", {}),
        ('\ue200image_group\ue202{"query": ["rye"]}\ue201\nPictures.', "\nPictures.", {}),
    ]
    for text, wanted, metadata in rows:
        with subtests.test(text=text):
            assert shown(text, **metadata) == wanted


def test_words_of_users_and_arguments_of_calls_keep_their_characters(tmp_path: Path) -> None:
    text = '{"q": "\ue200cite\ue202turn0search1\ue201"}'
    chat = answer(text)
    chat["mapping"]["a"]["message"]["recipient"] = "web"
    [call] = said(next(iter(read(chatgpt, chat, tmp_path)[0].nodes())))
    assert isinstance(call, ToolCall)
    assert call.arguments == json.loads(text)
    chat["mapping"]["a"]["message"] |= {"author": {"role": "user"}, "recipient": "all"}
    assert said(next(iter(read(chatgpt, chat, tmp_path)[0].nodes()))) == [
        Message(author=Author.USER, text=text)
    ]


def test_a_text_that_was_changed_is_kept_as_it_was(tmp_path: Path) -> None:
    text = "Rye. \ue200cite\ue202turn0search1\ue201"
    node = next(iter(read(chatgpt, answer("Before.", text), tmp_path)[0].nodes()))
    assert said(node) == [Message(author=Author.AGENT, text="Before.\n\nRye.")]
    assert text in kept(node)


_PIECES = [*"\ue200\ue201\ue202\ue203 【】†", "cite", "turn0search1", "url", "entity", '["a","b"]', "word"]


@given(st.lists(st.sampled_from(_PIECES), max_size=20).map("".join))
def test_whatever_the_marks_are_words_before_them_stay_and_marks_do_not(text: str) -> None:
    found = shown(text)
    if "\ue200" not in text:
        assert found == text
        return
    assert not set("\ue200\ue201\ue202\ue203") & set(found)
    before = text.partition("\ue200")[0]
    assert found.startswith("".join(each for each in before if not "\ue200" <= each <= "\ue203").rstrip(" "))


def test_charts_that_code_has_drawn_are_images_of_its_result(tmp_path: Path) -> None:
    chart = {"message_type": "image", "image_url": "file-service://file-chart1", "width": 640}
    chat = answer()
    chat["mapping"]["a"]["message"] |= {
        "author": {"role": "tool", "name": "python"},
        "content": {"content_type": "execution_output", "text": "drawn"},
        "metadata": {"aggregate_result": {"status": "success", "code": "plot()", "messages": [chart]}},
    }
    (tmp_path / "file-chart1-chart.png").write_bytes(PNG)
    read(chatgpt, chat, tmp_path)
    node = next(iter(next(chatgpt.EXPORT.transcripts(tmp_path)).nodes()))
    [result] = said(node)
    assert isinstance(result, ToolResult)
    assert (result.text, [image[:14] for image in result.images]) == ("drawn", ["data:image/png"])
    assert "plot()" in kept(node)
    assert "640" in kept(node)


def test_values_that_repeat_are_kept_once(tmp_path: Path) -> None:
    chat: dict[str, Any] = {"id": "x", "mapping": {}}
    for number, model in enumerate(["gpt-a", "gpt-a", "gpt-b"]):
        metadata = {"model_slug": model, "finish_details": {"type": "stop"}}
        message = {
            "author": {"role": "assistant"},
            "content": {"content_type": "text", "parts": ["x"]},
            "metadata": metadata,
        }
        chat["mapping"][str(number)] = {"message": message}
    first, second, third = (kept(node) for node in read(chatgpt, chat, tmp_path)[0].nodes())
    assert "gpt-a" in first
    assert "stop" in first
    assert second == "[]"
    assert "gpt-b" in third
    assert "stop" not in third


def message(sender: str, text: str, *blocks: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"uuid": f"{sender}-{text}", "sender": sender, "text": text, "content": list(blocks), **members}


def of_claude(told: dict[str, Any], directory: Path) -> Node:
    [transcript] = read(claude_ai, {"uuid": "x", "name": "x", "chat_messages": [told]}, directory)
    return next(iter(transcript.nodes()))


def test_the_text_of_a_message_counts_where_its_blocks_say_nothing(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    empty, none, words = ({"type": "text", "text": text} for text in ("", None, "Block."))
    call = {"type": "tool_use", "id": "t", "name": "x", "input": {}}
    rows: list[tuple[list[dict[str, Any]], list[str]]] = [
        ([], ["Text."]),
        ([empty], ["Text."]),
        ([none, empty], ["Text."]),
        ([empty, words], ["Block."]),
        ([call, empty], []),
    ]
    for blocks, wanted in rows:
        with subtests.test(blocks=blocks):
            node = of_claude(message("assistant", "Text.", *blocks), tmp_path)
            assert [part.text for part in said(node) if isinstance(part, Message)] == wanted
            assert ("Text." in kept(node)) is (wanted != ["Text."])


def test_what_stands_in_a_text_for_calls_is_not_kept_again(tmp_path: Path) -> None:
    words = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    text = "One.\n\n```\nThis block is not supported on your current device yet.\n```\n\nTwo."
    assert "One." not in kept(of_claude(message("assistant", text, *words), tmp_path))


def test_summaries_stand_for_a_thought_that_is_empty(tmp_path: Path, subtests: pytest.Subtests) -> None:
    summaries = [{"summary": "First."}, {"summary": "Then."}]
    words = {"type": "text", "text": "Done."}
    for thinking, wanted in (("", "First.\n\nThen."), (None, "First.\n\nThen."), ("Whole.", "Whole.")):
        with subtests.test(thinking=thinking):
            thought = {"type": "thinking", "thinking": thinking, "summaries": summaries}
            node = of_claude(message("assistant", "", thought, words), tmp_path)
            assert said(node) == [Message(author=Author.AGENT, text="Done.", reasoning=wanted)]
            assert "First." in kept(node)


def test_an_answer_that_was_cut_is_noted(tmp_path: Path, subtests: pytest.Subtests) -> None:
    words = {"type": "text", "text": "Half of"}
    for members, is_cut in (
        ({"truncated": True}, True),
        ({"stop_reason": "max_tokens"}, True),
        ({"stop_reason": "user_canceled"}, True),
        ({"truncated": False, "stop_reason": "end_turn"}, False),
    ):
        with subtests.test(members=members):
            node = of_claude(message("assistant", "", words, **members), tmp_path)
            assert node.noted == (("the answer was cut off",) if is_cut else ())


def test_what_calls_and_results_hold_beside_their_words_is_kept(tmp_path: Path) -> None:
    call = {
        "type": "tool_use",
        "id": "t",
        "name": "create_file",
        "input": {},
        "message": "a-page",
        "display_content": {"text": "tiny"},
    }
    resource = {"type": "local_resource", "file_path": "/made/page.html", "name": "page"}
    content = [{"type": "text", "text": "made"}, resource]
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": content,
        "structured_content": {"url": "at"},
    }
    node = of_claude(message("assistant", "", call, result), tmp_path)
    assert [type(part) for part in said(node)] == [ToolCall, ToolResult]
    for each in ("a-page", "tiny", "/made/page.html", '"url": "at"'):
        assert each in kept(node)


def test_a_star_is_a_pin_and_a_summary_is_kept(tmp_path: Path) -> None:
    chat = {
        "uuid": "x",
        "name": "x",
        "chat_messages": [message("human", "Hi.")],
        "summary": "Said hello.",
        "is_starred": True,
    }
    [transcript] = read(claude_ai, chat, tmp_path)
    assert transcript.is_pinned
    assert "Said hello." in kept(list(transcript.nodes())[-1])


def of_webui(messages: dict[str, Any], directory: Path, **members: Any) -> list[Transcript]:
    return read(
        open_webui,
        {"id": "x", "title": "x", "chat": {"history": {"messages": messages}}, **members},
        directory,
    )


def asked(**others: Any) -> dict[str, Any]:
    return {"role": "user", "content": "Compare.", "parentId": None, "childrenIds": ["a", "b"], **others}


def test_the_failure_of_one_of_two_models_is_a_branch(tmp_path: Path, subtests: pytest.Subtests) -> None:
    good = {"role": "assistant", "content": "Well.", "parentId": "q", "childrenIds": []}
    rows: list[tuple[Any, str, list[Part]]] = [
        ({"content": "No such model"}, "", [Failure("No such model")]),
        ({"message": "Timed out", "code": 504}, "", [Failure("Timed out")]),
        ("Refused", "", [Failure("Refused")]),
        (True, "Out of memory", [Failure("Out of memory")]),
        ({"code": 500}, "", [Failure('{"code": 500}')]),
        ({"content": "Cut"}, "Half", [Message(author=Author.AGENT, text="Half"), Failure("Cut")]),
    ]
    for error, content, wanted in rows:
        with subtests.test(error=error):
            bad = {**good, "content": content, "error": error}
            trunk, branch = of_webui({"q": asked(), "a": good, "b": bad}, tmp_path)
            assert not trunk.is_empty
            assert not branch.is_empty
            assert said(list(branch.nodes())[1]) == wanted


def test_addresses_of_a_search_are_said_and_other_files_are_kept(tmp_path: Path) -> None:
    files = [
        {"type": "web_search", "name": "rye", "urls": ["https://one.example", "https://two.example"]},
        {"type": "web_search", "urls": ["https://three.example"]},
        {"type": "file", "file": {"filename": "a.txt", "data": {"content": "Beds: 4"}, "meta": {"size": 7}}},
    ]
    node = next(iter(of_webui({"q": asked(files=files)}, tmp_path)[0].nodes()))
    [words] = said(node)
    assert isinstance(words, Message)
    assert words.text == (
        "Compare.\n\n[Web search: rye, https://one.example, https://two.example]\n\n"
        "[Web search: https://three.example]\n\n[Attachment: a.txt]\nBeds: 4"
    )
    assert '"size": 7' in kept(node)
    assert "Beds" not in kept(node)


def test_tags_pins_archive_and_folder_of_a_chat_are_read(tmp_path: Path) -> None:
    one, two = ({"role": "assistant", "content": "x", "parentId": "q", "childrenIds": []} for _ in range(2))
    messages = {"q": asked(), "a": one, "b": two}
    meta = {"tags": ["garden", {"name": "rye"}, 5, ""]}
    trunk, branch = of_webui(
        messages, tmp_path, meta=meta, pinned=True, archived=True, folder_id="f-1", tags=["garden"]
    )
    assert trunk.labels == branch.labels == ("garden", "rye")
    assert (trunk.is_archived, branch.is_archived) == (True, True)
    assert sorted([trunk.is_pinned, branch.is_pinned]) == [False, True]  # the one that was shown
    assert "f-1" in kept(list(trunk.nodes())[-1])
    assert "f-1" not in "".join(map(kept, branch.nodes()))
