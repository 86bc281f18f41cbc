"""The shapes in which people have exports of chats: packed twice, wrapped, repeated, in other encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import pytest

from conversations.transcripts.sources import archives, formats
from conversations.transcripts.sources.chats import chatgpt, claude_ai, exports, json_arrays, open_webui
from conversations.transcripts.sources.nodes import Empty, Transcript, Unreadable
from tests.support.data.import_files import chat, chats, export, zipped


def written(directory: Path, name: str, content: bytes) -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def titles(path: Path) -> list[str | None]:
    """Return the titles of what is found, in whichever format it is taken for."""
    return [each.title for each in formats.guessed(path).transcripts(path)]


def said(transcript: Transcript) -> list[str]:
    return [node.skipped or " + ".join(map(str, node.parts)) for node in transcript.nodes()]


def test_an_export_is_read_in_a_zip_file_within_a_zip_file_or_a_directory(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    one, two = export(chat("a", title="A")), export(chat("b", title="B"))
    mac = {"__MACOSX/._one.zip": b"Mac", ".DS_Store": b"Mac"}
    shapes = {
        "one": ({"chatgpt.zip": one}, ["A"]),
        "batches": ({"batch-0001.zip": one, "batch-0002.ZIP": two}, ["A", "B"]),
        "folder and notes": ({"mine/export.zip": one, "read me.txt": b"notes", **mac}, ["A"]),
    }
    for name, (files, wanted) in shapes.items():
        with subtests.test(shape=name):
            assert titles(written(tmp_path, f"{name}.zip", zipped(files))) == wanted
            for each, content in files.items():
                written(tmp_path / name, each, content)
            assert titles(tmp_path / name) == wanted


def test_a_zip_file_beside_conversations_is_a_file_that_somebody_sent(tmp_path: Path) -> None:
    files = {"conversations.json": chats(chat(title="A")), "file-1-broken.zip": b"PK\x03\x04 no zip file"}
    assert titles(written(tmp_path, "export.zip", zipped(files))) == ["A"]


def test_zip_files_in_zip_files_have_the_bounds_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(archives, "BOMB_MIN_BYTES", 100_000)
    monkeypatch.setattr(archives, "DIRECTORY_MAX_BYTES", 5_000)
    monkeypatch.setattr(archives, "INNER_MAX", 3)
    # Stored in the inner one, and packed in the outer one: neither has a ratio that is refused by itself.
    stored = tmp_path / "stored"
    with ZipFile(stored, "w", ZIP_STORED) as packed:
        packed.writestr("conversations.json", bytes(70_000))
    bomb = stored.read_bytes()
    shapes = {
        "more than it holds": {"a.zip": bomb, "b.zip": bomb},
        "more than 3 zip files": {f"{number}.zip": export() for number in range(4)},
        "more members than can be listed": {
            "a.zip": zipped({f"{'n' * 40}{each}": b"" for each in range(99)})
        },
        "a.zip is a damaged zip file": {"a.zip": export()[:-40]},
        "b.zip is a damaged zip file": {"b.zip": chats(chat()) + b" " * 50_000},
        "c.zip is a damaged zip file": {"c.zip": b""},
        "outside of itself": {"a.zip": zipped({"../conversations.json": b"[]"})},
    }
    for said_of_it, files in shapes.items():
        with subtests.test(said=said_of_it):
            file = written(tmp_path, "outer.zip", zipped(files))
            with pytest.raises(Unreadable, match=said_of_it):
                chatgpt.EXPORT.is_source(file)


def test_the_third_level_of_zip_files_is_not_opened(tmp_path: Path) -> None:
    file = written(tmp_path, "outer.zip", zipped({"a.zip": zipped({"b.zip": export()})}))
    assert list(archives.opened(file).names()) == ["a.zip/b.zip"]
    with pytest.raises(Unreadable, match="in no format that is known"):
        formats.guessed(file)


def test_nothing_that_was_unpacked_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    whole = written(tmp_path, "whole.zip", zipped({"a.zip": export()}))
    damaged = written(tmp_path, "damaged.zip", zipped({"a.zip": export()[:-40]}))
    assert titles(whole) == ["Cuckoo clocks"]
    with pytest.raises(Unreadable):
        archives.opened(damaged)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_export_is_read_in_each_unicode_encoding(tmp_path: Path, subtests: pytest.Subtests) -> None:
    text = json.dumps([chat(title="Größe 🐦")], ensure_ascii=False)
    for encoding in ("utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        with subtests.test(encoding=encoding):
            mark = "" if encoding == "utf-8-sig" else "\ufeff"
            content = (mark + text).encode(encoding)
            assert titles(written(tmp_path, "conversations.json", content)) == ["Größe 🐦"]
            if encoding.startswith("utf-16"):
                assert list(json_arrays.items([content[2:]], "file")) == [text[1:-1].encode()]
            pieces = (content[at : at + 1] for at in range(len(content)))
            assert list(json_arrays.items(pieces, "file")) == [text[1:-1].encode()]


def test_half_a_character_in_utf_16_damages_nothing_else(tmp_path: Path) -> None:
    first, second = ("\ufeff" + json.dumps([chat(title="AB"), chat("2", title="C")])).split("B")
    content = first.encode("utf-16-le") + b"\x3d\xd8" + second.encode("utf-16-le")
    assert titles(written(tmp_path, "conversations.json", content)) == ["A\ufffd", "C"]


def test_conversations_are_read_out_of_an_object_around_them(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    one, two = (json.dumps(chat(name, title=name)) for name in ("A", "B"))
    shapes = {
        "alone": f'{{"conversations": [{one}, {two}]}}',
        "after others": f'{{"version": 2, "by": {{"name": "x"}}, "l": [], "conversations":\n[{one},{two}]}}',
        "before others": f'{{"chats": [{one}, {two}], "count": 2, "more": [[]]}}',
    }
    for name, text in shapes.items():
        with subtests.test(shape=name):
            assert titles(written(tmp_path, "export.json", text.encode())) == ["A", "B"]


def test_a_member_of_one_conversation_is_not_an_object_around_many(tmp_path: Path) -> None:
    alone: Any = {"conversations": "not a list", **dict(chat(title="Alone"))}  # type: ignore[call-overload]
    assert titles(written(tmp_path, "chat.json", json.dumps(alone).encode())) == ["Alone"]


def test_an_export_without_conversations_is_known_as_that(tmp_path: Path, subtests: pytest.Subtests) -> None:
    numbered = {f"conversations-00{number}.json": b"[]" for number in (0, 1)}
    empty = {
        "list": written(tmp_path, "list/conversations.json", b" [ ]\n"),
        "wrapped": written(tmp_path, "wrapped.json", b'{"conversations": []}'),
        "zip file": written(tmp_path, "a.zip", zipped({"conversations.json": b"[]", "user.json": b"{}"})),
        "numbered": written(tmp_path, "b.zip", zipped(numbered)),
    }
    for name, path in empty.items():
        with subtests.test(shape=name), pytest.raises(Empty, match="There is no conversation in the file"):
            formats.guessed(path)
    for content in (b"", b"[1]", b"[", b"{}"):
        with subtests.test(content=content), pytest.raises(Unreadable) as error:
            formats.guessed(written(tmp_path, "other.json", content))
        assert not isinstance(error.value, Empty)


def test_the_same_conversation_in_two_files_is_stored_once_and_counted(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    messages = [{"uuid": "m", "sender": "human", "text": "Hello."}]
    history = {"messages": {"m": {"role": "user", "content": "Hello."}}}
    samples: dict[Any, Any] = {
        chatgpt.EXPORT: chat("same"),
        claude_ai.EXPORT: {"uuid": "same", "name": "x", "chat_messages": messages},
        open_webui.EXPORT: {"id": "same", "chat": {"history": history}},
    }
    for format, value in samples.items():
        with subtests.test(format=format.name):
            for number in (0, 1):
                content = json.dumps([value, value] if number else [value]).encode()
                written(tmp_path / format.name, f"conversations-{number}.json", content)
            first, second, third = format.transcripts(tmp_path / format.name)
            assert [each.source_id for each in (first, second, third)] == ["same", "same#2", "same#3"]
            assert [each.is_empty for each in (first, second, third)] == [False, True, True]
            reason = "an earlier conversation is the same to the last byte"
            assert said(second) == [reason] * first.node_count
            assert second.node_count == first.node_count


def test_one_of_the_same_id_that_differs_is_stored_as_well(tmp_path: Path) -> None:
    file = written(tmp_path, "conversations.json", chats(chat(title="A"), chat(title="B")))
    assert [(each.source_id, each.is_empty) for each in chatgpt.EXPORT.transcripts(file)] == [
        ("chat-1", False),
        ("chat-1#2", False),
    ]


def test_a_conversation_that_is_no_list_of_messages_keeps_its_title(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    samples: dict[Any, Any] = {
        chatgpt.EXPORT: {"title": "Readable", "mapping": None},
        claude_ai.EXPORT: {"name": "Readable", "chat_messages": None},
        open_webui.EXPORT: {"title": "Readable", "chat": None},
    }
    for format, value in samples.items():
        with subtests.test(format=format.name):
            file = written(tmp_path, "conversations.json", chats(value, {**value, "title": 5, "name": []}))
            assert [each.title for each in format.transcripts(file)] == ["Readable", "Damaged conversation"]


def entry(name: str, **links: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [name]}
    return {"id": name, "message": {"author": {"role": "user"}, "content": content}, **links}


def chains(file: Path, format: Any) -> list[list[str]]:
    return [[node.node_id for node in each.nodes()] for each in format.EXPORT.transcripts(file)]


def test_messages_without_links_follow_each_other(tmp_path: Path, subtests: pytest.Subtests) -> None:
    shapes: dict[str, tuple[list[dict[str, Any]], list[list[str]]]] = {
        "no links": ([entry("a"), entry("b"), entry("c")], [["a", "b", "c"]]),
        "children only": ([entry("b", children=[]), entry("a", children=["b"])], [["a", "b"]]),
        "some": ([entry("a", parent=None, children=["b"]), entry("c"), entry("b")], [["a", "b"], ["a", "c"]]),
        "nulls": ([entry("a", parent=None), entry("b", parent=None)], [["a"], ["b"]]),
    }
    for name, (entries, wanted) in shapes.items():
        with subtests.test(shape=name):
            value = {"id": "x", "mapping": {each["id"]: each for each in entries}}
            assert chains(written(tmp_path, "conversations.json", chats(value)), chatgpt) == wanted
    with subtests.test(format="open-webui"):
        history = {"messages": {name: {"role": "user", "content": name} for name in "abc"}}
        file = written(tmp_path, "chat.json", chats({"id": "x", "chat": {"history": history}}))
        assert chains(file, open_webui) == [["a", "b", "c"]]


def test_times_are_read_in_whichever_unit_they_are(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for factor in (1, 10**3, 10**6, 10**9):
        with subtests.test(factor=factor):
            value = entry("a")
            value["message"]["create_time"] = 1_700_000_000 * factor
            file = written(tmp_path, "conversations.json", chats({"id": "x", "mapping": {"a": value}}))
            [node] = next(chatgpt.EXPORT.transcripts(file)).nodes()
            assert node.at is not None
            assert node.at.isoformat() == "2023-11-14T22:13:20+00:00"
    for nothing in (True, -1, 0, 1e30, 10**400, "x"):
        assert exports.moment(nothing) is None
