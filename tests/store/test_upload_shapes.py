"""Uploads in the shapes that people have: zip files in zip files, empty exports, the same file twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation
from sessions_app.models import ImportState
from tests.store.test_import_uploads import carried_out, refused, uploaded
from tests.support.data.import_files import chat, chats, export, zipped

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def data_directory(configured: Callable[..., None], tmp_path: Path) -> Path:
    configured(data_dir=tmp_path)
    return tmp_path


def test_a_zip_file_of_zip_files_is_imported(alice: User, subtests: pytest.Subtests) -> None:
    for format in ("", "chatgpt"):
        with subtests.test(format=format):
            names = {f"{number}{format}.zip": export(chat(f"{number}{format}")) for number in (1, 2)}
            run = carried_out(uploaded(alice, zipped(names), format=format))
            assert (run.state, run.problem, run.conversations) == (ImportState.DONE, "", 2)
            assert run.totals["events"]["added"] == 2


def test_nothing_of_a_zip_file_in_a_zip_file_stays_on_the_disk(alice: User, data_directory: Path) -> None:
    carried_out(uploaded(alice, zipped({"a.zip": export()})))
    assert [path for path in (data_directory / "imports").rglob("*") if path.is_file()] == []


def test_a_zip_file_in_a_zip_file_may_not_unpack_to_more_than_the_server_takes(
    alice: User, configured: Callable[..., None], data_directory: Path
) -> None:
    configured(import_max_mb=1, data_dir=data_directory)
    within = zipped({"conversations.json": chats(chat()), "a.bin": bytes(11_000_000)})
    problem = refused(alice, zipped({"a.zip": within}))
    assert problem == "The zip file would unpack to more than this server takes."


def test_a_zip_file_in_a_zip_file_may_not_be_larger_than_an_upload(
    alice: User, configured: Callable[..., None], data_directory: Path
) -> None:
    configured(import_max_mb=1, data_dir=data_directory)
    stored = data_directory / "stored.zip"
    with ZipFile(stored, "w", ZIP_STORED) as packed:
        packed.writestr("conversations.json", bytes(1_100_000))
    problem = refused(alice, zipped({"a.zip": stored.read_bytes()}))
    assert problem == "The zip file would unpack to more than this server takes."


def test_an_export_without_conversations_is_said_to_have_none(alice: User, subtests: pytest.Subtests) -> None:
    empty = {
        "export.zip": zipped({"conversations.json": b"[]", "user.json": b"{}"}),
        "inner.zip": zipped({"export.zip": zipped({"conversations.json": b"[]"})}),
        "conversations.json": b"[]\n",
    }
    for name, content in empty.items():
        with subtests.test(name=name):
            assert refused(alice, content, name) == "There is no conversation in the file."


def test_a_conversation_that_comes_twice_is_stored_once_and_the_report_says_so(alice: User) -> None:
    files = {f"conversations-00{number}.json": chats(chat()) for number in (0, 1)}
    run = carried_out(uploaded(alice, zipped(files)))
    assert Conversation.objects.count() == 1
    records = run.totals["records"]
    assert (records["found"], records["stored"]) == (2, 1)
    assert records["skipped"] == {"an earlier conversation is the same to the last byte": 1}


def test_the_nodes_above_first_messages_are_no_records_of_a_report(alice: User) -> None:
    run = carried_out(
        uploaded(alice, chats(*(chat(f"chat-{number}") for number in range(3))), "conversations.json")
    )
    records = run.totals["records"]
    assert (records["found"], records["stored"], records["skipped"]) == (3, 3, {})
