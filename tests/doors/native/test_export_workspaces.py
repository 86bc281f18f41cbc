"""Exports with the files of workspaces: only if asked for, and passed over by imports."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from conversations.events import ConversationRef
from conversations.log import writes
from conversations.store import creation
from conversations.transcripts.sources import own
from sessions_app import astore
from sessions_app.workspaces import records
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native"


@pytest.fixture
def talk(alice: User, tmp_path: Path, configured: Callable[..., None]) -> ConversationRef:
    """A conversation with a workspace, in which a file looks like an export, beside one without."""
    configured(workspaces=tmp_path / "workspaces")
    creation.create(alice, conversation_id="other")
    conversation = creation.create(alice, conversation_id="talk", title="Fix the parser")
    writes.append(conversation, [event("hello")])
    directory = records.directory_of(conversation)
    (directory / "deep/er").mkdir(parents=True)
    (directory / "deep/er/export.jsonl").write_text('{"format":"convserver"}\n')
    return conversation


def opened(answer: httpx.Response) -> ZipFile:
    assert answer.status_code == 200, answer.text
    return ZipFile(io.BytesIO(answer.content))


def inner(archive: ZipFile) -> list[str]:
    """Return what the only workspace of an export has."""
    (name,) = (each for each in archive.namelist() if each.startswith("workspaces/"))
    assert name.startswith("workspaces/talk-")
    return ZipFile(io.BytesIO(archive.read(name))).namelist()


async def test_an_export_has_workspaces_if_they_are_asked_for(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in ("conversations/talk/export", "export"):
        for format in ("jsonl", "openhands-v0", "openhands-v1") if "talk" in path else ("",):
            with subtests.test(path=path, format=format):
                query = {"workspaces": "true", **({"format": format} if format else {})}
                archive = opened(await rest.get(f"{NATIVE}/{path}", params=query))
                assert inner(archive) == ["deep/", "deep/er/", "deep/er/export.jsonl"]
                assert len(archive.namelist()) > 1
    without = opened(await rest.get(f"{NATIVE}/export"))
    assert not [each for each in without.namelist() if each.startswith("workspaces/")]


async def test_a_format_of_one_file_has_no_workspace(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    for format in ("md", "html"):
        query = {"workspaces": "true", "format": format}
        answer = await rest.get(f"{NATIVE}/conversations/talk/export", params=query)
        assert (answer.status_code, "Choose jsonl" in answer.text) == (400, True), answer.text


async def test_an_import_passes_over_the_files_of_workspaces(
    talk: ConversationRef, rest: httpx.AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "export.zip"
    file.write_bytes((await rest.get(f"{NATIVE}/export", params={"workspaces": "true"})).content)
    found = await astore.call(lambda: [each.source_id for each in own.exports(file)])
    assert sorted(found) == ["other", "talk"]


def test_the_command_writes_workspaces_into_a_zip_file_and_a_directory(
    talk: ConversationRef, tmp_path: Path
) -> None:
    call_command("export_conversations", str(tmp_path / "all.zip"), workspaces=True)
    with ZipFile(tmp_path / "all.zip") as archive:
        assert "deep/er/export.jsonl" in inner(archive)
    call_command("export_conversations", str(tmp_path / "all"), layout="openhands-v0", workspaces=True)
    (written,) = (tmp_path / "all/workspaces").iterdir()
    assert "deep/er/export.jsonl" in ZipFile(written).namelist()
