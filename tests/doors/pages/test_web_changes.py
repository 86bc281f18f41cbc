"""The page of what has changed in a conversation's repositories."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.events import ConversationRef
from conversations.store import creation
from sessions_app.sandbox.base import SandboxName
from sessions_app.workspaces import records, uploads
from tests.conftest import once
from tests.support.people.commands import require_bubblewrap

pytestmark = once

GIT = ["git", "-c", "user.name=Alice", "-c", "user.email=alice@example.org", "-c", "safe.directory=*"]


@pytest.fixture
def talk(alice: User, tmp_path: Path, configured: Callable[..., None]) -> ConversationRef:
    """A conversation whose workspace is a repository with one commit."""
    require_bubblewrap()
    configured(workspaces=tmp_path / "workspaces", sandbox=SandboxName.AUTO)
    made = creation.create(alice, conversation_id="talk")
    uploads.put(made, "main.py", b"one = 1\n")
    uploads.put(made, "gone.py", b"two = 2\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*GIT, *words], cwd=records.directory_of(made), check=True)
    # Git takes no repository of another account for safe.
    directory = records.directory_of(made)
    subprocess.run(["chown", "-R", "--reference", str(directory), str(directory)], check=True)
    return made


@pytest.fixture
def browser(alice: User) -> Browser:
    """Alice's, in local mode, without scripts."""
    return Browser(headers={"host": "localhost", "referer": "http://localhost/c/talk/changes"})


def body(answer: Any) -> str:
    return str(answer.content.decode())


def test_changed_files_are_listed_and_each_is_shown_as_a_diff(
    talk: ConversationRef, browser: Browser
) -> None:
    assert "Nothing has changed" in body(browser.get("/c/talk/changes"))
    uploads.put(talk, "main.py", b"one = 1\nthree = <3>\n")
    uploads.put(talk, "new <b>.py", b"new = True\n")
    (records.directory_of(talk) / "gone.py").unlink()
    shown = body(browser.get("/c/talk/changes"))
    for name, words in (("main.py", "changed"), ("gone.py", "removed"), ("new &lt;b&gt;.py", "new")):
        assert f'<bdi>{name}</bdi> <span class="quiet">{words}</span>' in shown
    diff = body(browser.get("/c/talk/changes?path=main.py"))
    assert '<tr class="added">' in diff
    assert "three = &lt;3&gt;" in diff
    assert '<tr class="removed">' in body(browser.get("/c/talk/changes?path=gone.py"))


def test_a_path_that_leads_out_is_refused_with_a_sentence(talk: ConversationRef, browser: Browser) -> None:
    for path in ("../x", "/etc/passwd", "missing.py"):
        answer = browser.get(f"/c/talk/changes?path={path}")
        assert answer.status_code in (400, 404)
        assert 'role="alert"' in body(answer)


def test_without_a_sandbox_the_page_says_why_it_knows_nothing(
    talk: ConversationRef, browser: Browser, configured: Callable[..., None]
) -> None:
    configured(sandbox=SandboxName.OFF)
    answer = browser.get("/c/talk/changes")
    assert answer.status_code == 400
    assert "CONVSERVER_SANDBOX is off" in body(answer)
