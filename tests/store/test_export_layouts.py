"""Exports in OpenHands' layouts: what our importers read of them is what was exported."""

from __future__ import annotations

import json
from datetime import UTC
from errno import ENOSPC
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4
from zipfile import ZipFile

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import creation
from conversations.transcripts import openhands_v1
from conversations.transcripts.sources import openhands_v0
from convserver.exports import account, openhands
from convserver.exports.openhands import Layout
from sessions_app.imports.openhands_v0 import OpenHandsV0Importer
from sessions_app.openhands_v1 import imports
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.storage import attachments
from sessions_app.storage.attachments import NewFile
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

V0: list[dict[str, Any]] = [
    {"action": "message", "source": "user", "args": {"content": "Häagen", "image_urls": []}},
    {"action": "run", "source": "agent", "args": {"command": "ls", "number": 1.10}},
    {"observation": "run", "source": "agent", "content": "a\nb", "extras": {"command": "ls"}, "cause": 1},
]
V1: list[dict[str, Any]] = [
    {
        "kind": "MessageEvent",
        "id": "0b8f2f5c-6f1e-4f7e-8f0a-0a1b2c3d4e5f",
        "timestamp": "2025-11-20T08:49:32.056272",
        "source": "user",
        "llm_message": {"role": "user", "content": [{"type": "text", "text": "Why 1.10?"}]},
    },
    {"kind": "PauseEvent", "id": str(UUID(int=7)), "timestamp": "2025-11-20T08:50:00", "source": "user"},
]


def written(row: Conversation, layout: Layout, path: Path) -> dict[str, str]:
    """Write the layout below a path; return its files."""
    files = {file.path: file.text for file in openhands.files(row, layout)}
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return files


def free(conversation: ConversationRef) -> None:
    """Let another conversation have the id of this one, as on another server."""
    Conversation.objects.filter(pk=conversation.pk).update(public_id=f"before-{uuid4()}")


def rows_of(conversation: ConversationRef) -> list[tuple[object, ...]]:
    rows = Event.objects.of(conversation).order_by("seq")
    return list(rows.values_list("type", "source", "kind", "text", "timestamp"))


@pytest.fixture
def of_v0(alice: User) -> ConversationRef:
    made = creation.create(
        alice,
        conversation_id=uuid4().hex,
        title="Ice cream",
        repository="owner/name",
        branch="main",
        llm_model="openai/gpt-5",
    )
    writes.append(made, [event(raw=json.dumps(each)) for each in V0])
    return made


@pytest.fixture
def of_v1(alice: User) -> ConversationRef:
    setup = NewSetup(agent={"kind": "Agent", "llm": {"model": "openai/gpt-5", "usage_id": "agent"}})
    made = agent_setups.create(alice, setup, title="Numbers", tags={"work": "1"}, llm_model="openai/gpt-5")
    writes.append(made, [event(raw=json.dumps(each), event_id=str(each["id"])) for each in V1])
    return made


def test_a_v0_conversation_comes_back_from_its_layout(
    alice: User, of_v0: ConversationRef, tmp_path: Path
) -> None:
    before = Conversation.objects.get(pk=of_v0.pk)
    files = written(before, Layout.V0, tmp_path / "first")
    free(of_v0)
    (found,) = openhands_v0.found(tmp_path / "first")
    report = OpenHandsV0Importer(user=alice).take(found)
    after = Conversation.objects.get(public_id=of_v0.public_id)
    assert (report.events_added, report.conversation_id) == (len(V0), of_v0.public_id)
    assert rows_of(after.ref) == rows_of(of_v0)
    for name in ("title", "repository", "branch", "llm_model", "created_at"):
        assert getattr(after, name) == getattr(before, name)
    again = written(after, Layout.V0, tmp_path / "second")
    assert {name: json.loads(text) for name, text in again.items() if "/events/" in name} == {
        name: json.loads(text) for name, text in files.items() if "/events/" in name
    }


def test_a_v1_conversation_comes_back_from_its_layout_byte_for_byte(
    alice: User, of_v1: ConversationRef, tmp_path: Path
) -> None:
    before = Conversation.objects.get(pk=of_v1.pk)
    files = written(before, Layout.V1, tmp_path / "first")
    free(of_v1)
    skipped: list[tuple[str, str]] = []

    def skip(*told: str) -> None:
        skipped.append((told[0], told[1]))

    (directory,) = openhands_v1.directories(tmp_path / "first")
    persisted = openhands_v1.read(directory, zone=UTC, skip=skip)
    imported = imports.import_persisted(alice, persisted, zone=UTC, skip=skip)
    assert imported.conversation is not None
    after = Conversation.objects.get(pk=imported.conversation.pk)
    assert skipped == []
    assert (after.public_id, after.title, after.tags) == (of_v1.public_id, "Numbers", {"work": "1"})
    assert after.llm_model == before.llm_model
    assert after.created_at == before.created_at
    again = written(after, Layout.V1, tmp_path / "second")
    events = {name: text for name, text in files.items() if "/events/" in name}
    assert {name: text for name, text in again.items() if "/events/" in name} == events
    assert len(events) == len(V1)


@pytest.mark.parametrize("layout", list(Layout))
def test_a_conversation_of_the_other_wire_is_translated_and_can_be_read(
    alice: User, of_v0: ConversationRef, of_v1: ConversationRef, tmp_path: Path, layout: Layout
) -> None:
    other = of_v1 if layout is Layout.V0 else of_v0
    written(Conversation.objects.get(pk=other.pk), layout, tmp_path)
    free(other)
    if layout is Layout.V0:
        (found,) = openhands_v0.found(tmp_path)
        assert OpenHandsV0Importer(user=alice).take(found).events_added == len(V1)
    else:
        (directory,) = openhands_v1.directories(tmp_path)
        persisted = openhands_v1.read(directory, zone=UTC, skip=print)
        assert imports.import_persisted(alice, persisted, zone=UTC, skip=print).added == len(V0)


@pytest.mark.parametrize("name", ["two words", "ärger", ".hidden", "a" * 100])
def test_any_id_makes_names_that_any_system_takes(alice: User, name: str) -> None:
    for version in Version:
        made = creation.create(alice, conversation_id=f"{name}{version[-1:]}"[-100:], version=version)
        row = Conversation.objects.get(pk=made.pk)
        for layout in Layout:
            assert all(
                part.isascii() and not part.startswith(".") and " " not in part
                for file in openhands.files(row, layout)
                for part in file.path.split("/")
            )


@pytest.mark.parametrize("layout", list(Layout))
def test_the_command_writes_a_directory_or_a_zip_file_with_the_same_files(
    alice: User, of_v0: ConversationRef, of_v1: ConversationRef, tmp_path: Path, layout: Layout
) -> None:
    attachments.attach(of_v0, [NewFile(name="receipt.png", content=b"png")])
    directory, zipped = tmp_path / "store", tmp_path / "store.zip"
    for path in (directory, zipped):
        call_command("export_conversations", str(path), "--layout", layout.value, stdout=StringIO())
    files = [each for each in directory.rglob("*") if each.is_file()]
    written = {str(each.relative_to(directory)): each.read_bytes() for each in files}
    with ZipFile(zipped) as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == written
    assert len(written) == (1 if layout is Layout.V0 else 2) * 2 + len(V0) + len(V1) + 1
    with pytest.raises(CommandError, match="exists already"):
        call_command("export_conversations", str(directory), "--layout", layout.value)


def test_names_that_no_file_can_have_are_shortened_in_a_directory(
    of_v0: ConversationRef, tmp_path: Path
) -> None:
    names = [f"{'Ж' * 190}{number}.png" for number in range(2)]
    attachments.attach(of_v0, [NewFile(name=name, content=name.encode()) for name in names])
    call_command(
        "export_conversations", str(tmp_path / "store"), "--layout", Layout.V0.value, stdout=StringIO()
    )
    written = [each for each in (tmp_path / "store" / "attachments").rglob("*") if each.is_file()]
    assert {each.read_bytes().decode() for each in written} == set(names)
    assert all(each.name.startswith("ЖЖЖ") and each.suffix == ".png" for each in written)


def test_a_directory_that_could_not_be_written_leaves_nothing_and_is_written_by_the_next_run(
    of_v0: ConversationRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "1.json":
            raise OSError(ENOSPC, "No space left on device")
        return opened(path, *args, **options)

    directory, opened = tmp_path / "store", Path.open
    export = ["export_conversations", str(directory), "--layout", Layout.V0.value]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(CommandError, match="No space left"):
            call_command(*export)
    assert list(tmp_path.iterdir()) == []
    call_command(*export, stdout=StringIO())
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def test_a_directory_that_another_export_fills_is_left_to_it(of_v0: ConversationRef, tmp_path: Path) -> None:
    others = tmp_path / "store.unfinished" / "file"
    others.parent.mkdir()
    others.touch()
    with pytest.raises(CommandError, match=r"store\.unfinished exists already"):
        call_command("export_conversations", str(tmp_path / "store"), "--layout", Layout.V0.value)
    assert others.exists()


def test_one_conversation_is_exported_alone(
    alice: User, of_v0: ConversationRef, of_v1: ConversationRef
) -> None:
    chosen = Conversation.objects.filter(pk=of_v1.pk)
    content = b"".join(account.pieces(alice, chosen, Layout.V1))
    assert {name.partition("/")[0] for name in ZipFile(BytesIO(content)).namelist()} == {of_v1.public_id}
