"""Files of messages: attached by the native door, kept, given to models, shown, and said again."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.dialects.attached import AttachedFile, files_in, parts_of
from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.storage import attachments
from tests.conftest import Join
from tests.support.data.documents import encrypted, pdf
from tests.support.people.model_talks import model, told
from tests.support.servers.model_server import completion

TALK = "/api/native/conversations/talk"
EVENTS = f"{TALK}/events"
REPORT = pdf([f"Page {number} of the report" for number in range(1, 4)])


async def attached(rest: httpx.AsyncClient, name: str, content: bytes) -> dict[str, Any]:
    answer = await rest.post(f"{TALK}/files", params={"name": name}, content=content)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def said(rest: httpx.AsyncClient, text: str, *files: object) -> int:
    answer = await rest.post(EVENTS, json={"type": "message", "text": text, "files": files})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["seq"])


async def test_a_file_is_kept_and_read_and_models_get_its_text_with_the_message(
    talk: ConversationRef, alice: User, rest: httpx.AsyncClient, join: Join
) -> None:
    file = await attached(rest, "docs/report.pdf", REPORT)
    assert file == {
        "name": "report.pdf",
        "size": len(REPORT),
        "text": "Page 1 of the report\n\nPage 2 of the report\n\nPage 3 of the report\n\n",
        "pages": 3,
        "note": "",
        "is_kept": True,
    }
    assert await astore.call(attachments.content_of, talk, "report.pdf") == REPORT
    assert (await rest.get("/c/talk/file", params={"path": "report.pdf"})).content == REPORT
    async with model(alice, completion(["Three pages."])) as asked:
        client = await join(talk)
        await said(rest, "What is this?", file)
        await client.until("event", kind="turn")
    [(role, content)] = told(asked[0])
    assert role == "user"
    size = len(REPORT)
    kept = f'The user attached "report.pdf" ({size} bytes, 3 pages; in the workspace under this name).'
    assert content == f"What is this?\n\n{kept}\n\n{file['text']}"


async def test_a_file_that_cannot_be_read_is_kept_and_models_get_the_sentence(
    talk: ConversationRef, alice: User, rest: httpx.AsyncClient, join: Join
) -> None:
    file = await attached(rest, "secret.pdf", encrypted(REPORT, "password"))
    why = "Its text cannot be read: it is encrypted; remove its password, and attach it again."
    assert (file["text"], file["pages"], file["note"], file["is_kept"]) == ("", None, why, True)
    assert (await attached(rest, "blank.pdf", pdf([""])))["note"] == "It has no text: its pages are pictures."
    long = await attached(rest, "long.csv", b"a,b\n" * 100_000)
    assert (len(long["text"]), long["note"]) == (200_000, "Only its first 200,000 characters are here.")
    async with model(alice, completion(["No."])) as asked:
        client = await join(talk)
        await said(rest, "", file)
        await client.until("event", kind="turn")
    [(_, content)] = told(asked[0])
    assert content.endswith(why)


async def test_the_page_shows_the_files_of_a_message_and_their_texts_as_texts(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    hostile = {"name": '<b>"x".md', "size": 2048, "text": "<script>alert(1)</script>", "note": "<i>note"}
    seq = await said(rest, "Look", await attached(rest, "report.pdf", REPORT), hostile)
    html = (await rest.get("/c/talk")).text
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
    assert "report.pdf" in words
    assert "3 pages" in words
    assert 'href="/c/talk/file?path=report.pdf"' in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script>alert" not in html
    assert "&lt;b&gt;&quot;x&quot;.md" in html
    # In the form for the same message in other words, too.
    again = (await rest.get(f"/c/talk/again?message={seq}")).text
    assert "report.pdf" in again


async def test_a_message_in_other_words_has_its_files(
    talk: ConversationRef, rest: httpx.AsyncClient, alice: User
) -> None:
    seq = await said(rest, "Look", {"name": "a.txt", "size": 5, "text": "hello"})
    form = {"message": str(seq), "text": "Read"}
    page = await rest.get(f"/c/talk/again?message={seq}")
    [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[:1]
    headers = {"referer": "http://localhost/c/talk/again"}
    cookies = {"cookie": f"csrftoken={page.cookies['csrftoken']}"}
    form["csrfmiddlewaretoken"] = token
    answer = await rest.post("/c/talk/again", data=form, headers={**headers, **cookies})
    assert answer.status_code == 302, answer.text
    branch = answer.headers["location"].rpartition("/")[2]
    events = (await rest.get(f"/api/native/conversations/{branch}/events")).json()["events"]
    assert "hello" in json.dumps([each["event"] for each in events if each["source"] == "user"])
    assert await Conversation.objects.acount() == 2


async def test_files_that_no_message_can_have_are_refused_and_nothing_is_stored(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    good = {"name": "a.txt", "size": 1, "text": "x"}
    draft = {"text": "", "images": [], "version": 0}
    for files in (
        "a.txt",
        [1],
        [{"name": "a.txt"}],
        [{**good, "name": ""}],
        [{**good, "size": -1}],
        [{**good, "size": "1"}],
        [{**good, "text": "x" * 200_001}],
        [{**good, "more": 1}],
        [good] * 21,
    ):
        with subtests.test(files=str(files)[:80]):
            refused = await rest.post(EVENTS, json={"type": "message", "text": "hi", "files": files})
            assert (refused.status_code, refused.json()["code"]) == (400, "bad_frame")
            assert "files" in refused.json()["detail"]
            answer = await rest.put(f"{TALK}/draft", json={**draft, "files": files})
            assert answer.status_code == 400, answer.text
    assert (await rest.get(EVENTS)).json()["events"] == []


async def test_a_draft_keeps_its_files(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    file = await attached(rest, "notes.md", "Grüße\0".encode())
    written = await rest.put(f"{TALK}/draft", json={"text": "", "images": [], "files": [file], "version": 0})
    assert written.status_code == 200, written.text
    assert (await rest.get(f"{TALK}/draft")).json()["files"] == [file]


async def test_a_file_that_has_no_room_is_refused_with_the_reason(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "FILE_MAX_BYTES", 10)
    refused = await rest.post(f"{TALK}/files?name=a.txt", content=b"x" * 11)
    detail = "The file has 11 bytes; the limit is 10."
    assert (refused.status_code, refused.json()) == (400, {"code": "not_attached", "detail": detail})
    unnamed = await rest.post(f"{TALK}/files", content=b"x")
    assert unnamed.status_code == 400
    assert (await rest.get("/c/talk/files")).text.count("There are no files yet.") == 1


def test_the_text_of_a_file_is_read_back_as_it_was_written() -> None:
    files = (
        AttachedFile(name='say "hi"\n\\.txt', size=1, text="The user attached\n\nx", is_kept=True),
        AttachedFile(name="会.pdf", size=10, pages=1, note="It has no text: its pages are pictures."),
        AttachedFile(name="a (1 bytes).md", size=0, text="\n\n", pages=0, note="One. Two."),
    )
    assert files_in(parts_of(files)) == files
    strangers = ['The user attached "\\x" (1 bytes).', "The user attached nothing.", ""]
    assert files_in([{"type": "text", "text": text} for text in strangers]) == ()
