"""Conversations as files: JSON lines that can be checked, Markdown for people, HTML that opens anywhere."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from conversations import dialects
from conversations.log import writes
from conversations.log.append import chain
from conversations.models import Conversation, ConversationRef
from conversations.store import creation
from conversations.transcripts import jsonl, markdown
from convserver.exports import conversation as export
from sessions_app import astore
from tests.doors.test_access import login_cookie
from tests.support.data.events import event
from tests.support.data.hostile import HOSTILE
from tests.support.wires import event_places
from tests.support.wires.page_parts import PageParts
from tests.support.wires.v0_wire import RECORDINGS, stored

pytestmark = pytest.mark.one_engine

SPACED = '{ "action":"message",\n "source":"user","args":{"content":"é","n":1.10}}'
ODD = '{"action":"message","source":"user","args":{"content":"lone \\ud800 half","n":1E5}}'
CALL = '{"action":"run","source":"agent","args":{"command":"echo ```"},"id":7}'
RESULT = '{"observation":"run","content":"```\\nout","extras":{},"cause":7}'
HIDDEN = '{"action":"run","args":{"command":"echo token","hidden":true}}'


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    conversation = creation.create(alice, conversation_id="talk", title="Fix the parser")
    events = [event(raw=raw) for raw in (SPACED, ODD, CALL, RESULT, HIDDEN)]
    writes.append(conversation, [*events, event("Thanks")])
    return conversation


async def exported(rest: httpx.AsyncClient, format: str, *, conversation_id: str = "talk") -> httpx.Response:
    answer = await rest.get(f"/c/{conversation_id}/export.{format}")
    assert answer.status_code == 200, answer.text
    return answer


def fetched(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.content.decode().split("\n")[:-1]]


# JSON lines


async def test_the_first_line_says_what_the_events_are_and_the_last_proves_them(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await exported(rest, "jsonl")
    manifest, *lines, end = fetched(answer)
    assert manifest["conversation"]["title"] == "Fix the parser"
    assert manifest["events"] == len(lines) == 6
    assert (manifest["first_seq"], manifest["last_seq"]) == (0, 5)
    of_events = b"".join(answer.content.splitlines(keepends=True)[1:-1])
    assert end == {
        "type": "end",
        "events": 6,
        "kinds": {"message": 3, "tool_call": 2, "tool_result": 1},
        "sha256": sha256(of_events).hexdigest(),
    }


async def test_an_export_begins_before_the_log_is_read_and_costs_the_same_for_each_page(
    talk: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversations.log.reads.PAGE_MAX_BYTES", 1)

    def costs() -> list[int]:
        found: list[int] = []
        pieces = export.json_lines(export.source(Conversation.objects.get(pk=talk.pk)))
        while True:
            with CaptureQueriesContext(connection) as queries:
                if next(pieces, None) is None:
                    return found
            found.append(len(queries))

    first, *of_pages, last = await astore.call(costs)
    assert (first, last) == (0, 0)
    assert len(of_pages) == 6
    assert set(of_pages) == {2}


async def test_payloads_are_there_byte_for_byte_and_prove_the_logs_digest(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await exported(rest, "jsonl")
    manifest, *lines, _ = answer.content.decode().split("\n")[:-1]
    digest = ""
    for line in lines:
        columns = json.loads(line)
        payload = columns.get("payload") or line.partition(',"event":')[2][:-1]
        digest = chain(digest, seq=columns["seq"], event_id=columns["id"], payload=payload)
    assert digest == json.loads(manifest)["head_digest"]


async def test_a_payload_of_several_lines_stays_on_one(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    lines = fetched(await exported(rest, "jsonl"))
    assert lines[1]["payload"] == SPACED
    assert "payload" not in lines[2]


async def test_an_empty_conversation_is_a_manifest_and_an_end(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    manifest, end = fetched(await exported(rest, "jsonl"))
    assert (manifest["events"], manifest["first_seq"], manifest["last_seq"]) == (0, None, None)
    assert end["sha256"] == sha256(b"").hexdigest()


async def test_an_export_ends_where_the_log_ended_when_it_began(
    talk: ConversationRef, alice: User, live: None
) -> None:
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    answer = await astore.call(export.download, row, export.Format.JSONL)
    await astore.call(writes.append, talk, [event("later")])
    content = b"".join([bytes(piece) async for piece in answer])
    assert b"later" not in content
    assert json.loads(content.partition(b"\n")[0])["last_seq"] == 5


# Markdown


async def test_markdown_quotes_what_was_said_and_fences_what_tools_did(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    text = (await exported(rest, "md")).text
    assert text.startswith("# Fix the parser\n")
    assert "\n> Thanks\n" in text
    assert "\n````bash\necho ```\n````\n" in text
    assert "\n````\n```\nout\n````\n" in text
    assert "Result of 2" in text
    assert "token" not in text  # its author hid it


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_event_of_a_recording_is_a_section_with_its_text(path: Any) -> None:
    for payload in json.loads(path.read_text()):
        each = stored(json.dumps(payload))
        section = markdown.section(each)
        assert section.startswith("\n## 5 · ")
        if each["kind"] not in ("message", "tool_call"):
            assert each["text"].rstrip("\n") in section


def test_no_text_ends_the_block_that_it_stands_in(subtests: pytest.Subtests) -> None:
    for hostile in HOSTILE:
        with subtests.test(hostile.name):
            for place, each in event_places.blocks(hostile.block).items():
                lines = markdown.section(each).strip("\n").split("\n")
                outside, fence = [], ""
                for line in lines[1:]:
                    if fence:
                        fence = "" if line == fence else fence
                    elif opened := re.match(r"(`{3,})[a-z]*$", line):
                        fence = opened[1]
                    elif line and not line.startswith(">"):
                        outside.append(line)
                assert not fence, place
                assert outside in ([], ["(no text)"]), place


def test_a_title_means_nothing_to_markdown() -> None:
    assert markdown.inline("[x](y) <b>\n# *z*") == r"\[x\](y) \<b\> \# \*z\*"


# One HTML file


async def test_the_html_file_needs_nothing_else(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    text = (await exported(rest, "html")).text
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in text
    assert "<script" not in text
    assert "<link" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert text.count("<style>") == text.count("</style>") == 1
    assert text.endswith("</html>\n")


async def test_the_html_file_shows_the_events_as_the_page_does(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    text = (await exported(rest, "html")).text
    _, _, main = text.partition("</dl>")
    parts = PageParts(main.partition("</main>")[0])
    assert [each.attributes["data-seq"] for each in parts.named("article")] == ["0", "1", "2", "5"]
    assert parts.of_class("result")[0].attributes["data-seq"] == "3"
    assert "token" not in parts.text


async def test_the_html_file_has_long_output_to_its_end_and_links_to_no_server(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    content = "a line\\n" * 20_000 + "the end"
    await astore.call(writes.append, talk, [event(raw=f'{{"observation":"run","content":"{content}"}}')])
    text = (await exported(rest, "html")).text
    assert "the end" in text
    assert 'class="download"' not in text
    assert 'href="/' not in text


@pytest.mark.parametrize("format", ["html", "md", "jsonl"])
async def test_a_hostile_conversation_is_exported(alice: User, rest: httpx.AsyncClient, format: str) -> None:
    title = '<script>x</script>"{{ 7|add:7 }}'
    conversation = await astore.call(creation.create, alice, conversation_id="talk", title=title)
    events = [event(json.dumps(each.block)[1:-1], raw=None) for each in HOSTILE]
    await astore.call(writes.append, conversation, events)
    text = (await exported(rest, format)).text
    assert all(each.mark in text for each in HOSTILE)
    assert "{{ 7|add:7 }}" in text.replace("\\|", "|")
    if format == "html":
        assert "<script" not in text


# Names


TITLES: list[tuple[str, str]] = [
    ("Fix the parser", "Fix the parser"),
    ("../../etc/passwd", "etc passwd"),
    ('a"b\r\nX: y', "a b X y"),
    ("日本語 ✓", "日本語 ✓"),
    ("invoice_\u202egnp.exe", "invoice_ gnp.exe"),
    ("x" * 500, "x" * 80),
    ("...", ""),
    ("\x00\ud800", ""),
]


def test_a_title_becomes_a_file_name_that_every_system_takes(subtests: pytest.Subtests) -> None:
    for title, name in TITLES:
        with subtests.test(title=title, name=name):
            assert export.file_name(title) == name


async def test_the_file_is_named_by_the_title_in_any_script(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(creation.create, alice, conversation_id="talk", title="日本語")
    headers = (await exported(rest, "md")).headers
    assert headers["content-disposition"] == "attachment; filename*=utf-8''%E6%97%A5%E6%9C%AC%E8%AA%9E.md"
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_title_of_which_nothing_is_left_gives_way_to_the_id(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(creation.create, alice, conversation_id="talk", title="...")
    headers = (await exported(rest, "html")).headers
    assert headers["content-disposition"] == 'attachment; filename="conversation-talk.html"'


# Doors


async def test_the_native_door_gives_the_same_file(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    for format in export.Format:
        answer = await rest.get("/api/native/conversations/talk/export", params={"format": format})
        assert answer.content == (await exported(rest, format)).content


async def test_an_unknown_format_is_refused_with_the_known_ones(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get("/api/native/conversations/talk/export?format=pdf")
    assert answer.status_code == 400
    assert "pdf" in answer.text


@pytest.mark.parametrize("path", ["/c/talk/export.md", "/c/talk/events/0/output"])
async def test_files_are_for_the_owner_alone(
    accounts: None, talk: ConversationRef, rest: httpx.AsyncClient, alice: User, bob: User, path: str
) -> None:
    cookies = [await astore.call(login_cookie, user) for user in (alice, bob)]
    statuses = [(await rest.get(path, headers={"cookie": each})).status_code for each in cookies]
    assert statuses == [200, 404]
    assert (await rest.get(path)).status_code == 302


# What one event says, as a file


async def test_an_events_text_is_a_plain_file(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    answer = await rest.get("/c/talk/events/3/output")
    assert answer.text == "```\nout"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="event-3.txt"'
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_an_events_file_is_not_cut_where_its_column_is(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, talk, [event("x" * 300_000)])
    assert len((await rest.get("/c/talk/events/6/output")).text) == 300_000


@pytest.mark.parametrize("seq", ["4", "99", str(2**63), "9" * 40])
async def test_what_is_hidden_or_not_there_has_no_file(
    talk: ConversationRef, rest: httpx.AsyncClient, seq: str
) -> None:
    assert (await rest.get(f"/c/talk/events/{seq}/output")).status_code == 404


def test_a_line_holds_the_columns_of_an_event() -> None:
    reading = dialects.read({"action": "message", "args": {"content": "x"}})
    beside = jsonl.Beside(datetime(2026, 2, 3, tzinfo=UTC), 7, is_input=True, wire_id=None)
    line = json.loads(jsonl.line(stored('{"a":1}', reading=reading, turn="t", tool_call_id="c"), beside))
    assert line["event"] == {"a": 1}
    assert (line["turn"], line["tool_call_id"], line["hidden"]) == ("t", "c", False)
    assert line["received_at"] == "2026-02-03T00:00:00.000000Z"
    assert (line["epoch"], line["input"], line["wire_id"]) == (7, True, None)
