"""Workspaces: made on first use, bounded, counted as uploads, and gone with a purge alone."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connections

from conversations.exceptions import ConversationNotFound, QuotaExceeded, StoreUnavailable
from conversations.models import Conversation, ConversationRef, Purge, Version
from conversations.store import creation, deletion, purging
from convserver.quotas import Quotas
from sessions_app.models import Usage, Workspace
from sessions_app.retention import places, purges, rounds, user_deletions
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.storage import attachments
from sessions_app.storage.attachments import Attached, NewFile, Skipped
from sessions_app.workspaces import paths, records, uploads
from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.records import WorkspaceFull
from sessions_app.workspaces.tree import FilesHeld, Tree

Configured = Callable[..., None]

MARKER = ".convserver-workspaces"
"""The file in the place of all directories by which the server knows that it is that one."""


@pytest.fixture
def root(tmp_path: Path, configured: Configured) -> Path:
    """Where the directories are."""
    configured(workspaces=tmp_path / "workspaces")
    return tmp_path / "workspaces"


def directory_of(conversation: ConversationRef, root: Path) -> Path:
    return root / Workspace.objects.get(conversation_id=conversation.pk).directory


def directories_in(root: Path) -> list[str]:
    """Return the names of all directories of workspaces."""
    return [each.name for each in root.iterdir() if each.is_dir()]


def held(conversation: ConversationRef) -> FilesHeld:
    row = Workspace.objects.get(conversation_id=conversation.pk)
    return FilesHeld(row.bytes, row.files)


def make(conversation: ConversationRef, path: str) -> None:
    uploads.make_directory(conversation, path)


def uploaded_bytes(user: User) -> int:
    return Usage.objects.get(user=user).uploaded_bytes


def names(directory: Path) -> list[str]:
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*"))


def purge(conversation: ConversationRef) -> Purge:
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason="asked for"
    )
    assert begun is not None
    return begun


def test_a_directory_is_made_on_first_use_for_the_account_of_the_server_alone(
    conversation: ConversationRef, root: Path
) -> None:
    with records.opened(conversation) as tree:
        assert tree is None
    assert not root.exists()
    uploads.put(conversation, "/workspace/src/a.py", b"print()")
    directory = directory_of(conversation, root)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (root, directory)] == [0o700, 0o700]
    assert stat.S_IMODE((root / MARKER).stat().st_mode) == 0o600
    assert (directory / "src" / "a.py").read_bytes() == b"print()"
    assert held(conversation) == FilesHeld(7, 2)


def test_each_conversation_has_a_directory_of_its_own(alice: User, bob: User, root: Path) -> None:
    for user in (alice, bob):
        talk = creation.create(user)
        uploads.put(talk, "name", user.username.encode())
        assert names(directory_of(talk, root)) == ["name"]
    assert len(directories_in(root)) == 2


def test_a_file_takes_the_place_of_another_one_and_is_counted_once(
    conversation: ConversationRef, root: Path
) -> None:
    for content in (b"12345", b"12", b"1234567890"):
        uploads.put(conversation, "a/b", content)
        assert held(conversation) == FilesHeld(len(content), 2)
    assert (directory_of(conversation, root) / "a" / "b").read_bytes() == b"1234567890"


def test_uploads_at_once_are_all_there_and_all_counted(conversation: ConversationRef, root: Path) -> None:
    def put(number: int) -> None:
        try:
            uploads.put(conversation, f"{number % 4}/{number}", b"x" * number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(12)))
    assert held(conversation) == FilesHeld(sum(range(12)), 16)
    assert len(names(directory_of(conversation, root))) == 16


# Limits


def test_a_workspace_holds_so_much_and_says_so(
    conversation: ConversationRef, root: Path, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(workspace_max_mb=1, workspace_max_files=3)
    monkeypatch.setattr(attachments, "TOTAL_MAX_BYTES", 10_000_000)
    uploads.put(conversation, "a", b"x" * 600_000)
    with pytest.raises(WorkspaceFull, match=r"1,000,000 bytes in 3 files .*CONVSERVER_WORKSPACE_MAX_MB"):
        uploads.put(conversation, "b/c", b"x" * 400_001)
    with pytest.raises(WorkspaceFull):
        uploads.make_directory(conversation, "1/2/3")
    assert (names(directory_of(conversation, root)), held(conversation)) == (["a"], FilesHeld(600_000, 1))
    assert [each.name for each in attachments.attachments_of(conversation)] == ["a"]
    uploads.put(conversation, "b/c", b"x" * 400_000)
    with pytest.raises(WorkspaceFull):
        uploads.put(conversation, "d", b"")
    uploads.put(conversation, "a", b"")  # what makes it smaller has room


def test_what_others_have_removed_makes_room(
    conversation: ConversationRef, root: Path, configured: Configured
) -> None:
    configured(workspace_max_mb=1)
    uploads.put(conversation, "a", b"x" * 600_000)
    (directory_of(conversation, root) / "a").unlink()
    uploads.put(conversation, "b", b"x" * 600_000)
    assert held(conversation) == FilesHeld(600_000, 1)


def test_a_file_that_has_no_room_is_skipped_and_harms_no_other(
    conversation: ConversationRef, root: Path, configured: Configured
) -> None:
    configured(workspace_max_files=2)
    files = [NewFile(name=name, content=b"x") for name in ("a", "b", "c")]
    first, second, third = uploads.put_all(conversation, files)
    assert isinstance(first, Attached)
    assert isinstance(second, Attached)
    assert isinstance(third, Skipped)
    assert third.reason.startswith("The workspace of this conversation is full")
    assert (names(directory_of(conversation, root)), held(conversation)) == (["a", "b"], FilesHeld(2, 2))


def test_a_name_that_is_taken_in_the_workspace_gets_a_number_too(
    conversation: ConversationRef, root: Path
) -> None:
    uploads.make_directory(conversation, "a")
    (directory_of(conversation, root) / "b").write_bytes(b"of an agent")
    files = [NewFile(name=name, content=b"x") for name in ("a", "b", "c")]
    found = [each.name for each in uploads.put_all(conversation, files)]
    assert found == ["a-1", "b-1", "c"]
    assert (directory_of(conversation, root) / "b").read_bytes() == b"of an agent"


def test_names_of_many_bytes_and_names_of_the_server_are_stored_or_skipped(
    conversation: ConversationRef, root: Path
) -> None:
    draft = f".convserver-draft-{0:016}"
    stored, skipped = uploads.put_all(
        conversation, [NewFile(name="会" * 300 + ".txt", content=b"x"), NewFile(name=draft, content=b"x")]
    )
    assert names(directory_of(conversation, root)) == [stored.name]
    assert stored.name.endswith(".txt")
    assert isinstance(skipped, Skipped)
    with pytest.raises(PathRefused):
        uploads.put(conversation, f"a/{draft}", b"x")


# Quotas


def test_a_file_that_is_an_attachment_too_counts_once_and_any_other_counts_as_well(
    alice: User, root: Path, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "FILE_MAX_BYTES", 100_000)
    configured(quotas=Quotas(uploads_mb=1))
    talk = creation.create(alice)
    uploads.put(talk, "small", b"x" * 100_000)
    assert uploaded_bytes(alice) == 100_000
    uploads.put(talk, "large", b"x" * 500_000)
    uploads.put(talk, "large", b"x" * 500_000)
    assert uploaded_bytes(alice) == 700_000 + 2 * 512  # at most what is there
    with pytest.raises(QuotaExceeded, match="bytes of uploads"):
        uploads.put(talk, "more", b"x" * 400_000)
    assert names(directory_of(talk, root)) == ["large", "small"]
    assert held(talk) == FilesHeld(600_000, 2)
    Usage.objects.update(is_counted=False)
    with pytest.raises(QuotaExceeded, match="701,024 of 1,000,000"):
        uploads.put(creation.create(alice), "more", b"x" * 400_000)


def test_directories_and_small_files_count_as_the_room_that_they_take(
    alice: User, root: Path, configured: Configured
) -> None:
    configured(quotas=Quotas(uploads_mb=1))
    talk = creation.create(alice)
    make(talk, "a/b/c")
    make(talk, "a/b/c")
    assert uploaded_bytes(alice) == 3 * 512
    uploads.put(talk, "a/empty", b"")
    uploads.put(talk, "a/empty", b"")
    assert uploaded_bytes(alice) == 4 * 512
    uploads.put(talk, "d/large", b"x" * 1_000)
    assert uploaded_bytes(alice) == 5 * 512 + 1_000
    uploads.put_all(talk, [NewFile(name=name, content=b"x") for name in ("e", "f")])
    assert uploaded_bytes(alice) == 7 * 512 + 1_000
    Usage.objects.update(is_counted=False)
    with pytest.raises(QuotaExceeded, match="4,584 of 1,000,000"):
        uploads.put(talk, "more", b"x" * 999_999)


def test_a_directory_for_which_there_is_no_quota_is_not_made_and_not_counted(
    alice: User, root: Path, configured: Configured
) -> None:
    configured(quotas=Quotas(uploads_mb=1))
    talk = creation.create(alice)
    uploads.put(talk, "a", b"x" * 999_000)
    with pytest.raises(QuotaExceeded):
        make(talk, "b/c")
    with pytest.raises(QuotaExceeded):
        uploads.put(talk, "b/c", b"")
    assert (names(directory_of(talk, root)), held(talk)) == (["a"], FilesHeld(999_000, 1))
    assert [each.name for each in attachments.attachments_of(talk)] == ["a"]
    assert uploaded_bytes(alice) == 999_000


class AskedNames(set[str]):
    """Names, and how often one was looked for."""

    times = 0

    def __contains__(self, name: object) -> bool:
        AskedNames.times += 1
        return super().__contains__(name)


def test_a_free_name_is_found_in_few_tries_however_many_are_taken() -> None:
    AskedNames.times = 0
    taken = AskedNames({"a.txt", *(f"a-{number}.txt" for number in range(1, 100_000))})
    found = attachments.safe_name("a.txt", taken)
    assert re.fullmatch(r"a-[0-9a-f]{16}\.txt", found)
    assert AskedNames.times < 1_100
    assert attachments.safe_name("a.txt", {"a.txt", "a-1.txt"}) == "a-2.txt"


# What goes wrong


def test_nothing_is_left_of_a_file_that_could_not_be_stored(
    conversation: ConversationRef, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads.put(conversation, "a", b"old")

    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("The database is away.")

    monkeypatch.setattr(attachments, "attach", fail)
    for path in ("a", "b/c"):
        with pytest.raises(StoreUnavailable):
            uploads.put(conversation, path, b"new")
    directory = directory_of(conversation, root)
    assert (names(directory), (directory / "a").read_bytes()) == (["a"], b"old")
    assert held(conversation) == FilesHeld(3, 1)


@pytest.fixture(params=[OSError(errno.EIO, "Input/output error"), IsADirectoryError(21, "Is a directory")])
def unkept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file named `bad` or `bad.txt` come to its place, as on a broken disk, or beside an agent."""
    replace = os.replace

    def fail(source: bytes, target: bytes, **directories: int) -> None:
        if target.startswith(b"bad"):
            raise request.param
        replace(source, target, **directories)

    monkeypatch.setattr(os, "replace", fail)


@pytest.mark.usefixtures("unkept")
def test_a_file_that_does_not_come_to_its_place_is_counted_nowhere(
    alice: User, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "FILE_MAX_BYTES", 1_000)
    talk = creation.create(alice)
    uploads.put(talk, "a", b"x" * 600)
    for content in (b"", b"x" * 600, b"x" * 2_000):
        with pytest.raises((StoreUnavailable, PathRefused)):
            uploads.put(talk, "folder/bad", content)
    assert names(directory_of(talk, root)) == ["a"]
    assert held(talk) == FilesHeld(600, 1)
    assert [each.name for each in attachments.attachments_of(talk)] == ["a"]
    assert Workspace.objects.get(conversation_id=talk.pk).charged == 0
    assert uploaded_bytes(alice) == 600
    Usage.objects.update(is_counted=False)
    uploads.put(talk, "b", b"x" * 600)
    assert uploaded_bytes(alice) == 1_200


@pytest.mark.usefixtures("unkept")
def test_of_several_files_one_that_does_not_come_to_its_place_is_skipped(alice: User, root: Path) -> None:
    talk = creation.create(alice)
    files = [NewFile(name=name, content=b"x" * 600) for name in ("a.txt", "bad.txt", "c.txt")]
    first, second, third = uploads.put_all(talk, files)
    assert isinstance(second, Skipped)
    assert second.name == "bad.txt"
    assert [each.name for each in (first, third)] == ["a.txt", "c.txt"]
    assert names(directory_of(talk, root)) == ["a.txt", "c.txt"]
    assert (held(talk), uploaded_bytes(alice)) == (FilesHeld(1_200, 2), 1_200)
    assert [each.name for each in attachments.attachments_of(talk)] == ["a.txt", "c.txt"]


def test_a_workspace_that_cannot_be_measured_is_told(
    conversation: ConversationRef, root: Path, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads.put(conversation, "a", b"x")
    configured(workspace_max_files=1)

    def fail(_: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", fail)
        with pytest.raises(StoreUnavailable, match="Too many open files"):
            uploads.put(conversation, "b", b"x")
        with pytest.raises(StoreUnavailable, match="Too many open files"):
            make(conversation, "c")
    assert (names(directory_of(conversation, root)), held(conversation)) == (["a"], FilesHeld(1, 1))


# The place of all directories


def test_a_directory_that_is_gone_is_an_empty_workspace(conversation: ConversationRef, root: Path) -> None:
    uploads.put(conversation, "a", b"x")
    directory_of(conversation, root).rename(root.with_name("elsewhere"))
    with records.opened(conversation) as tree:
        assert tree is None
    uploads.put(conversation, "b", b"123")
    assert (names(directory_of(conversation, root)), held(conversation)) == (["b"], FilesHeld(3, 1))


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_place_that_is_not_mounted_is_neither_empty_nor_made_anew(
    alice: User, conversation: ConversationRef, root: Path, is_empty: bool
) -> None:
    uploads.put(conversation, "a", b"x")
    away = root.with_name("away")
    root.rename(away)
    if is_empty:  # as the directory is in which a file system is mounted
        root.mkdir()
    for talk in (conversation, creation.create(alice)):
        with pytest.raises(StoreUnavailable, match=r"CONVSERVER_WORKSPACES.*\.convserver-workspaces"):
            uploads.put(talk, "b", b"x")
    with pytest.raises(StoreUnavailable), records.opened(conversation):
        pass
    assert list(root.iterdir() if is_empty else ()) == []
    assert Workspace.objects.count() == 1
    if is_empty:
        root.rmdir()
    away.rename(root)
    uploads.put(conversation, "b", b"x")
    assert names(directory_of(conversation, root)) == ["a", "b"]


def test_files_that_are_lost_are_given_up_by_the_marker_in_a_new_place(
    conversation: ConversationRef, root: Path
) -> None:
    uploads.put(conversation, "a", b"x")
    root.rename(root.with_name("lost"))
    root.mkdir()
    (root / MARKER).touch()
    with records.opened(conversation) as tree:
        assert tree is None
    uploads.put(conversation, "b", b"x")
    assert names(directory_of(conversation, root)) == ["b"]


def test_a_place_that_cannot_be_used_is_told(conversation: ConversationRef, root: Path) -> None:
    root.write_bytes(b"no directory")
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        uploads.put(conversation, "a", b"x")
    assert not attachments.attachments_of(conversation)


def test_a_link_in_the_place_of_the_directory_is_not_followed(
    conversation: ConversationRef, root: Path, tmp_path: Path
) -> None:
    uploads.put(conversation, "a", b"x")
    directory = directory_of(conversation, root)
    directory.rename(tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    with pytest.raises(StoreUnavailable), records.opened(conversation):
        pass


# Deletion and purge


def test_deletion_hides_the_files_and_restoring_brings_them_back(
    alice: User, conversation: ConversationRef, root: Path
) -> None:
    uploads.put(conversation, "a", b"x")
    deletion.soft_delete(conversation)
    with pytest.raises(ConversationNotFound):
        uploads.put(conversation, "b", b"x")
    assert names(directory_of(conversation, root)) == ["a"]
    deletion.restore(conversation)
    with records.opened(conversation) as tree:
        assert tree is not None
        assert tree.names("", 9) == ["a"]


def test_a_purge_removes_the_files_in_steps_and_the_quota_gets_them_back(
    alice: User, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "FILE_MAX_BYTES", 10)
    monkeypatch.setattr(places, "STEP_ROWS", 2)
    talk, other = creation.create(alice), creation.create(alice)
    for number in range(5):
        uploads.put(talk, f"{number}/deep/file", b"x" * 20)
    uploads.put(other, "file", b"x" * 20)
    (tmp_path / "outside").touch()
    (directory_of(talk, root) / "link").symlink_to(tmp_path)
    begun = purge(talk)
    steps = 0
    while purges.step(begun.pk):
        steps += 1
    assert steps > 5
    begun.refresh_from_db()
    assert begun.bytes >= 100
    assert directories_in(root) == [directory_of(other, root).name]
    assert not Workspace.objects.filter(conversation_id=talk.pk).exists()
    assert (tmp_path / "outside").exists()
    uploads.put(other, "file", b"x" * 20)
    assert uploaded_bytes(alice) == 20 + 512


def test_the_deletion_of_a_user_removes_the_files_of_all_conversations(
    alice: User, bob: User, root: Path
) -> None:
    for user in (alice, bob, bob):
        uploads.put(creation.create(user), "a/b", b"x")
    user_deletions.begin(bob, requested_by="tests")
    while user_deletions.is_any_unfinished():
        rounds.begin_due()
        rounds.finish_all()
    assert directories_in(root) == [Workspace.objects.get().directory]
    assert Workspace.objects.get().conversation.owner_id == alice.pk


def test_what_is_written_while_a_purge_begins_is_swept_away(
    conversation: ConversationRef, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads.put(conversation, "a", b"x")
    with records.changing(conversation) as change:
        purges.run(purge(conversation).pk)
        assert directories_in(root) == []
        with pytest.raises((PathRefused, ConversationNotFound)):
            change.drafted("late", b"x")
    with pytest.raises(ConversationNotFound):
        uploads.put(conversation, "later", b"x")
    assert directories_in(root) == []


def test_a_purge_goes_on_where_the_directory_is_gone(conversation: ConversationRef, root: Path) -> None:
    uploads.put(conversation, "a", b"x")
    directory_of(conversation, root).rename(root.with_name("elsewhere"))
    purges.run(purge(conversation).pk)
    assert not Workspace.objects.exists()


def test_a_purge_waits_for_a_place_that_is_not_mounted(conversation: ConversationRef, root: Path) -> None:
    uploads.put(conversation, "a", b"x")
    away = root.with_name("away")
    root.rename(away)
    root.mkdir()
    begun = purge(conversation)
    with pytest.raises(StoreUnavailable, match="CONVSERVER_WORKSPACES"):
        purges.run(begun.pk)
    assert Workspace.objects.count() == 1
    root.rmdir()
    away.rename(root)
    purges.run(begun.pk)
    assert not Workspace.objects.exists()
    assert directories_in(root) == []


# Paths of clients

MEANT = [
    (None, "/workspace/a/b", "a/b"),
    (None, "a/b", "a/b"),
    (None, "./a//b/", "a/b"),
    (None, "", ""),
    (None, "/workspace", ""),
    (None, "/workspace/", ""),
    (None, "//workspace/a", "a"),
    (None, "/workspace/project/a", "project/a"),
    ("workspace/project", "/workspace/project/a", "a"),
    ("workspace/project", "/workspace/a", "a"),
    ("/workspace", "/workspace/project/a", "project/a"),
    ("/workspace/project/x", "/workspace/project/x/../x/a", "a"),
    ("/workspace/project/x", "/workspace/project/xy", "xy"),
    ("/home/me/site", "/home/me/site", ""),
    ("/home/me/site", "/home/me/site/a", "a"),
    ("/", "/etc/passwd", "etc/passwd"),
]


def test_paths_of_both_wires_name_files_in_the_workspace(alice: User, subtests: pytest.Subtests) -> None:
    for working_dir, path, meant in MEANT:
        with subtests.test(working_dir=working_dir, path=path):
            talk = creation.create(alice, version=Version.V0 if working_dir is None else Version.V1)
            if working_dir is not None:
                workspace = {"kind": "LocalWorkspace", "working_dir": working_dir}
                agent_setups.add(talk, NewSetup(workspace=workspace))
            assert paths.relative(talk, path) == meant


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "..", "a/../../b", "/workspace/../etc", "/workspacex", "a\0b", "/", "/home/me"]
)
def test_paths_of_other_places_are_refused_with_where_the_workspace_is(
    conversation: ConversationRef, path: str
) -> None:
    with pytest.raises(PathRefused) as refused:
        paths.relative(conversation, path)
    assert str(refused.value).isprintable()


def test_a_workspace_has_the_limits_of_the_settings(conversation: ConversationRef, root: Path) -> None:
    uploads.put(conversation, "a", b"x")
    with records.opened(conversation) as tree:
        assert isinstance(tree, Tree)
        assert tree.limits == (1_000_000_000, 100_000, 64)
