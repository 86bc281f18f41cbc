"""Copies of workspaces in an archive: what comes back is what was there, and hostile archives are refused."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from conversations.events import ConversationRef
from convserver.backups import workspaces
from sessions_app.models import Workspace
from sessions_app.workspaces import records
from sessions_app.workspaces.copies import COPY_LIMITS, CopiedFiles, CopyReader, CopyRefused, CopyWriter

pytestmark = pytest.mark.one_engine

TOP = "0" * 32


@pytest.fixture
def workspace(conversation: ConversationRef, tmp_path: Path, configured: Callable[..., None]) -> Path:
    configured(workspaces=tmp_path / "workspaces")
    return records.directory_of(conversation)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    found = tmp_path / "empty"
    found.mkdir()
    return found


def written(target: io.BytesIO) -> CopyWriter:
    """Write the only workspace."""
    row = Workspace.objects.get()
    with CopyWriter(target, 10**9) as writer, records.opened_by(row, COPY_LIMITS) as tree:
        assert tree is not None
        writer.add(row.directory, tree)
    return writer


def put(archive: bytes, into: Path, expected: CopiedFiles) -> None:
    opened = os.open(into, os.O_RDONLY)
    try:
        CopyReader(opened, expected, lambda name: True).read(io.BytesIO(archive))
    finally:
        os.close(opened)


def archive_of(*members: tarfile.TarInfo) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(bytes(each.size)) if each.isreg() else None)
    return target.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, *, target: str = "", size: int = 0) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size, found.mode = kind, target, size, 0o755
    return found


def test_a_file_that_shrinks_while_it_is_read_leaves_a_whole_archive_and_is_counted(
    workspace: Path, empty: Path
) -> None:
    large = workspace / "large"
    large.write_bytes(os.urandom(1_000_000))

    class Shrinking(io.BytesIO):
        def write(self, piece: object, /) -> int:
            if self.tell() > 100_000:  # in the middle
                os.truncate(large, 300_000)
            return super().write(piece)  # type: ignore[arg-type]

    target = Shrinking()
    writer = written(target)
    assert (writer.copied, writer.changed) == (CopiedFiles(1, 1, 1_000_000), 1)
    put(target.getvalue(), empty, writer.copied)
    assert (empty / workspace.name / "large").stat().st_size == 1_000_000


def test_a_file_of_another_account_is_left_out_and_counted(workspace: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    (workspace / "closed").touch(0o000)
    writer = written(io.BytesIO())
    assert (writer.copied, writer.unread) == (CopiedFiles(1, 0, 0), 1)


def test_a_directory_that_is_gone_is_left_out_of_a_backup(workspace: Path, tmp_path: Path) -> None:
    rows = list(Workspace.objects.all())
    workspace.rmdir()
    held = workspaces.write(rows, tmp_path / "archive")
    assert (held.workspaces, held.entries) == (0, 0)


def test_a_deep_tree_comes_back(workspace: Path, empty: Path) -> None:
    name, depth = "d" * 40, 150  # longer than a path of the kernel
    opened = os.open(workspace, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=opened)
        inner = os.open(name, os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=opened))
    os.close(opened)
    target = io.BytesIO()
    writer = written(target)
    assert writer.copied == CopiedFiles(1, depth + 1, 0)
    put(target.getvalue(), empty, writer.copied)
    assert sum(len(names) for _, _, names, _ in os.fwalk(empty)) == 1


HOSTILE = {
    "an absolute name": [member("/etc/file")],
    "a name that leads out": [member(f"{TOP}/../file")],
    "a workspace of no such name": [member("..", tarfile.DIRTYPE)],
    "a workspace that is a link": [member(TOP, tarfile.SYMTYPE, target="/tmp")],
    "a file outside of workspaces": [member(TOP, tarfile.DIRTYPE), member("1" * 32 + "/file")],
    "a hard link": [
        member(TOP, tarfile.DIRTYPE),
        member(f"{TOP}/hard", tarfile.LNKTYPE, target="/etc/passwd"),
    ],
    "a device": [member(TOP, tarfile.DIRTYPE), member(f"{TOP}/device", tarfile.CHRTYPE)],
    "a FIFO": [member(TOP, tarfile.DIRTYPE), member(f"{TOP}/pipe", tarfile.FIFOTYPE)],
    "a file through a link": [
        member(TOP, tarfile.DIRTYPE),
        member(f"{TOP}/link", tarfile.SYMTYPE, target="/tmp"),
        member(f"{TOP}/link/file"),
    ],
    "a file twice": [member(TOP, tarfile.DIRTYPE), member(f"{TOP}/file"), member(f"{TOP}/file")],
    "a file in the place of a link": [
        member(TOP, tarfile.DIRTYPE),
        member(f"{TOP}/link", tarfile.SYMTYPE, target="/tmp/written"),
        member(f"{TOP}/link"),
    ],
    "a workspace twice": [member(TOP, tarfile.DIRTYPE), member("1" * 32, tarfile.DIRTYPE)] * 2,
    "more bytes": [member(TOP, tarfile.DIRTYPE), member(f"{TOP}/file", size=1001)],
    "more files": [member(TOP, tarfile.DIRTYPE), *(member(f"{TOP}/{each}") for each in range(11))],
    "fewer files": [member(TOP, tarfile.DIRTYPE)],
    "a name too deep": [member(TOP, tarfile.DIRTYPE), member(f"{TOP}/{'d/' * 600}file")],
    "a name of megabytes": [member(TOP, tarfile.DIRTYPE), member(f"{TOP}/{'n' * 2_000_000}")],
}


def test_an_archive_by_a_stranger_is_refused_and_touches_nothing_outside(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    expected = CopiedFiles(1, 10, 1000)
    for number, (name, members) in enumerate(HOSTILE.items()):
        with subtests.test(has=name):
            into = tmp_path / str(number)
            into.mkdir()
            with pytest.raises(CopyRefused):
                put(archive_of(*members), into, expected)
            outside = [each for each in tmp_path.iterdir() if not each.name.isdecimal()]
            assert not outside
    for each in (b"", b"no archive", gzip.compress(b"no tar file"), archive_of(member(TOP))[:-20]):
        with subtests.test(archive=each[:20]), pytest.raises(CopyRefused):
            put(each, tmp_path / "0", expected)


def test_a_workspace_that_no_conversation_has_is_refused(empty: Path) -> None:
    reader = CopyReader(None, CopiedFiles(1, 0, 0), lambda name: False)
    with pytest.raises(CopyRefused, match="the workspace of no conversation"):
        reader.read(io.BytesIO(archive_of(member(TOP, tarfile.DIRTYPE))))
