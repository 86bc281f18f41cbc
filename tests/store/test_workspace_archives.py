"""Archives of workspaces: whole, or broken off and logged; bounded in descriptors and in memory."""

from __future__ import annotations

import errno
import os
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from conversations.events import ConversationRef
from conversations.exceptions import StoreUnavailable
from sessions_app.models import Workspace
from sessions_app.workspaces import archives, uploads
from tests.support.data.descriptors import descriptors_in

Configured = Callable[..., None]
Archive = Callable[[ConversationRef], Iterator[bytes]]

pytestmark = pytest.mark.one_engine

ARCHIVES: dict[str, Archive] = {
    "zip": archives.zipped,
    "tar": lambda conversation: archives.tar_gz(conversation, "", "project", ["*.pyc", "left_out/"]),
}


@pytest.fixture(params=ARCHIVES)
def archive(request: pytest.FixtureRequest) -> Archive:
    """One of the two kinds."""
    return ARCHIVES[request.param]


@pytest.fixture
def directory(conversation: ConversationRef, tmp_path: Path, configured: Configured) -> Path:
    """The directory of the conversation's workspace, with a file in it."""
    configured(workspaces=tmp_path / "workspaces")
    uploads.put(conversation, "a", b"of a")
    return tmp_path / "workspaces" / Workspace.objects.get(conversation_id=conversation.pk).directory


def names_in(archive: Archive, conversation: ConversationRef) -> list[str]:
    content = b"".join(archive(conversation))
    if archive is archives.zipped:
        with ZipFile(BytesIO(content)) as file:
            assert file.testzip() is None
            return file.namelist()
    with tarfile.open(fileobj=BytesIO(content)) as file:
        return [each.removeprefix("project/") for each in file.getnames()[:-1]]


def test_a_name_in_an_archive_is_no_drive_and_leads_nowhere_on_any_system(
    conversation: ConversationRef, directory: Path, archive: Archive
) -> None:
    for name in ("C:\\x", "..\\..\\y", "12:00", "12_00"):
        (directory / name).touch()
    assert names_in(archive, conversation) == ["..%5C..%5Cy", "12%3A00", "12_00", "C%3A%5Cx", "a"]


def test_a_deep_workspace_needs_few_descriptors(
    conversation: ConversationRef, directory: Path, archive: Archive
) -> None:
    for depth in range(50):
        (directory / "/".join(["d"] * depth)).mkdir(exist_ok=True)
        (directory / "/".join(["d"] * depth) / "file").touch()
    before = descriptors_in(directory)
    for _ in archive(conversation):
        assert descriptors_in(directory) <= before + 5
    assert descriptors_in(directory) == before
    assert len(names_in(archive, conversation)) == 100


@pytest.mark.parametrize("call", ["pread", "scandir", "open"])
def test_an_archive_that_the_disk_fails_breaks_off_and_is_logged(
    conversation: ConversationRef,
    directory: Path,
    archive: Archive,
    call: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = errno.EMFILE if call == "open" else errno.EIO
    before = descriptors_in(directory)
    content = archive(conversation)

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as broken:
        broken.setattr("sessions_app.workspaces.beneath.has_openat2", lambda: False)
        broken.setattr(os, call, fail)
        with pytest.raises(StoreUnavailable, match=os.strerror(code)):
            list(content)
    del content
    assert descriptors_in(directory) == before
    assert conversation.public_id in caplog.text
    assert os.strerror(code) in caplog.text


def test_what_is_removed_while_an_archive_is_made_is_left_out_of_it(
    conversation: ConversationRef, directory: Path, archive: Archive
) -> None:
    (directory / "b").mkdir()
    (directory / "b" / "c").touch()
    content = archive(conversation)
    (directory / "a").unlink()
    (directory / "b" / "c").unlink()
    (directory / "b").rmdir()
    assert b"of a" not in b"".join(content)


def test_a_workspace_that_cannot_be_opened_is_refused_before_its_archive_begins(
    conversation: ConversationRef, directory: Path, archive: Archive
) -> None:
    directory.parent.rename(directory.parent.with_name("away"))
    with pytest.raises(StoreUnavailable, match="CONVSERVER_WORKSPACES"):
        archive(conversation)


def test_an_archive_that_is_not_fetched_leaves_nothing_open(
    conversation: ConversationRef, directory: Path, archive: Archive
) -> None:
    before = descriptors_in(directory)
    for at_most in (0, 1):
        content = archive(conversation)
        for _, _ in zip(range(at_most), content, strict=False):
            pass
        del content
        assert descriptors_in(directory) == before


def test_an_archive_of_files_that_are_all_left_out_can_be_left_at_many_places(
    conversation: ConversationRef, directory: Path
) -> None:
    for number in range(1_000):
        (directory / f"{number}.pyc").touch()
    content = list(ARCHIVES["tar"](conversation))
    assert len(content) > 1_000 / 100
    with tarfile.open(fileobj=BytesIO(b"".join(content))) as file:
        assert file.getnames() == ["project/a", "project/archive_manifest.json"]


def test_the_list_at_the_end_of_a_zip_file_is_not_kept_in_memory(
    conversation: ConversationRef, directory: Path
) -> None:
    for number in range(3_000):
        (directory / f"{number:0200}").touch()
    content = archives.zipped(conversation)
    next(content)
    tracemalloc.start()
    try:
        size = sum(map(len, content))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 3_000 * 2 * 200
    # The names themselves, of which a walk has those of one directory, have 0.8 MB; entries of a list had 4.
    assert most < 1_500_000
