"""The pages of a conversation's files."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client as Browser

from conversations.events import ConversationRef
from conversations.store import creation
from sessions_app.workspaces import records, uploads
from tests.conftest import once

pytestmark = once

Shown = Callable[..., Any]


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id="talk")


@pytest.fixture
def browser(alice: User) -> Browser:
    """Alice's, in local mode, without scripts."""
    return Browser(headers={"host": "localhost", "referer": "http://localhost/c/talk/files"})


def fill(talk: ConversationRef, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        uploads.put(talk, path, content)


def body(answer: Any) -> str:
    return str(answer.content.decode())


def streamed(answer: Any) -> bytes:
    async def whole() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return asyncio.run(whole())


def test_directories_and_files_are_listed_and_lead_to_each_other(
    talk: ConversationRef, browser: Browser
) -> None:
    assert "There are no files yet." in body(browser.get("/c/talk/files"))
    fill(talk, {"src/main.py": b"print('hello')\n", "notes.txt": b"Buy milk & bread\n"})
    first = body(browser.get("/c/talk/files"))
    assert first.index('href="/c/talk/files?path=src"') < first.index('href="/c/talk/files?path=notes.txt"')
    assert 'href="/c/talk/files?path=src/main.py"' in body(browser.get("/c/talk/files?path=src"))
    shown = body(browser.get("/c/talk/files?path=src/main.py"))
    assert 'class="nb">print</span>' in shown  # coloured
    assert 'href="/c/talk/files?path=src"' in shown
    assert "Buy milk &amp; bread" in body(browser.get("/c/talk/files?path=/workspace/notes.txt"))


def test_names_of_any_bytes_are_shown_and_can_be_opened(talk: ConversationRef, browser: Browser) -> None:
    odd = "<b> \udcff&?#.txt"
    fill(talk, {odd: b"odd"})
    shown = body(browser.get("/c/talk/files"))
    assert "&lt;b&gt; \ufffd&amp;?#.txt" in shown
    assert 'href="/c/talk/files?path=%3Cb%3E%20%FF%26%3F%23.txt"' in shown
    assert "<code>odd</code>" in body(browser.get("/c/talk/files?path=%3Cb%3E%20%FF%26%3F%23.txt"))
    answer = browser.get("/c/talk/file?path=%3Cb%3E%20%FF%26%3F%23.txt")
    assert streamed(answer) == b"odd"
    assert answer.headers["Content-Disposition"].startswith("attachment")


def test_a_file_that_is_no_text_or_too_large_can_be_downloaded_only(
    talk: ConversationRef, browser: Browser
) -> None:
    fill(talk, {"picture.png": b"\x89PNG\0\0", "long.txt": b"a" * 2_000_001})
    assert "The file is not text" in body(browser.get("/c/talk/files?path=picture.png"))
    assert "The file is too large to be shown here" in body(browser.get("/c/talk/files?path=long.txt"))
    assert streamed(browser.get("/c/talk/file?path=picture.png")) == b"\x89PNG\0\0"


@pytest.mark.parametrize("address", ["/c/talk/files?path={}", "/c/talk/file?path={}"])
def test_a_path_that_names_nothing_or_leads_out_is_refused_with_a_sentence(
    talk: ConversationRef, browser: Browser, address: str, subtests: pytest.Subtests
) -> None:
    fill(talk, {"notes.txt": b""})
    with records.changing(talk) as change:
        os.symlink("/etc/passwd", "out", dir_fd=change.tree.root)
    for path in ("missing", "../x", "/etc/passwd", "out", "notes.txt/x", "%00", "out/x"):
        with subtests.test(path):
            answer = browser.get(address.format(path))
            assert answer.status_code == (404 if path in ("missing", "notes.txt/x") else 400)
            assert 'role="alert"' in body(answer)
            assert "root:" not in body(answer)


def test_only_the_first_thousand_entries_are_shown(talk: ConversationRef, browser: Browser) -> None:
    with records.changing(talk) as change:
        for number in range(1_001):
            os.close(os.open(f"{number:04}", os.O_CREAT | os.O_WRONLY, dir_fd=change.tree.root))
    shown = body(browser.get("/c/talk/files"))
    assert shown.count('href="/c/talk/files?path=') == 1_000
    assert "Only the first 1000 are shown." in shown


def test_files_are_added_under_free_names_and_the_whole_is_a_zip_file(
    talk: ConversationRef, browser: Browser
) -> None:
    for content in (b"one", b"two"):
        answer = browser.post("/c/talk/files", {"file": SimpleUploadedFile("notes.txt", content)})
        assert answer.status_code == 200
    assert "Added notes" in body(answer)
    with zipfile.ZipFile(io.BytesIO(streamed(browser.get("/c/talk/file")))) as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    assert sorted(contents) == [b"one", b"two"]
    refused = browser.post("/c/talk/files")
    assert refused.status_code == 400
    assert "Choose a file." in body(refused)


def test_a_full_workspace_refuses_a_file_with_a_sentence(
    talk: ConversationRef, browser: Browser, configured: Callable[..., None]
) -> None:
    configured(workspace_max_files=1)
    files = [SimpleUploadedFile(name, b"x") for name in ("a.txt", "b.txt")]
    answer = body(browser.post("/c/talk/files", {"file": files}))
    assert "Added a.txt." in answer
    assert "b.txt was left out. The workspace of this conversation is full" in answer


def test_a_nearly_full_workspace_is_told(
    talk: ConversationRef, browser: Browser, configured: Callable[..., None]
) -> None:
    configured(workspace_max_files=5)
    fill(talk, {"a/b": b"b", "c": b"c"})
    assert "nearly full" not in body(browser.get("/c/talk/files"))
    fill(talk, {"d": b"d"})
    told = "The workspace is nearly full: it holds 0 of 1,000 MB, and 4 of 5 files and directories."
    assert told in body(browser.get("/c/talk/files"))
