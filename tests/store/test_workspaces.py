"""Workspaces: made on first use, bounded, counted as uploads, and gone with a purge alone."""

from __future__ import annotations

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
from sessions_app.retention import places, purges
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.storage import attachments
from sessions_app.storage.attachments import Attached, NewFile, Skipped
from sessions_app.workspaces import paths, records, uploads
from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.records import WorkspaceFull
from sessions_app.workspaces.tree import FilesHeld, Tree

Configured = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path, configured: Configured) -> Path:
    """Where the directories are."""
    configured(workspaces=tmp_path / "workspaces")
    return tmp_path / "workspaces"


def directory_of(conversation: ConversationRef, root: Path) -> Path:
    return root / Workspace.objects.get(conversation_id=conversation.pk).directory


def held(conversation: ConversationRef) -> FilesHeld:
    row = Workspace.objects.get(conversation_id=conversation.pk)
    return FilesHeld(row.bytes, row.files)


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
    assert (directory / "src" / "a.py").read_bytes() == b"print()"
    assert held(conversation) == FilesHeld(7, 2)


def test_each_conversation_has_a_directory_of_its_own(alice: User, bob: User, root: Path) -> None:
    for user in (alice, bob):
        talk = creation.create(user)
        uploads.put(talk, "name", user.username.encode())
        assert names(directory_of(talk, root)) == ["name"]
    assert len(list(root.iterdir())) == 2


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
    assert uploaded_bytes(alice) == 700_000  # at most what is there
    with pytest.raises(QuotaExceeded, match="bytes of uploads"):
        uploads.put(talk, "more", b"x" * 400_000)
    assert names(directory_of(talk, root)) == ["large", "small"]
    assert held(talk) == FilesHeld(600_000, 2)
    Usage.objects.update(is_counted=False)
    with pytest.raises(QuotaExceeded, match="700,000 of 1,000,000"):
        uploads.put(creation.create(alice), "more", b"x" * 400_000)


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


def test_a_directory_that_is_gone_is_an_empty_workspace(conversation: ConversationRef, root: Path) -> None:
    uploads.put(conversation, "a", b"x")
    root.rename(root.with_name("elsewhere"))
    with records.opened(conversation) as tree:
        assert tree is None
    uploads.put(conversation, "b", b"123")
    assert (names(directory_of(conversation, root)), held(conversation)) == (["b"], FilesHeld(3, 1))


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
    assert [each.name for each in root.iterdir()] == [directory_of(other, root).name]
    assert not Workspace.objects.filter(conversation_id=talk.pk).exists()
    assert (tmp_path / "outside").exists()
    uploads.put(other, "file", b"x" * 20)
    assert uploaded_bytes(alice) == 20


def test_what_is_written_while_a_purge_begins_is_swept_away(
    conversation: ConversationRef, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads.put(conversation, "a", b"x")
    with records.changing(conversation) as change:
        purges.run(purge(conversation).pk)
        assert list(root.iterdir()) == []
        with pytest.raises((PathRefused, ConversationNotFound)):
            change.drafted("late", b"x")
    with pytest.raises(ConversationNotFound):
        uploads.put(conversation, "later", b"x")
    assert list(root.iterdir()) == []


def test_a_purge_goes_on_where_the_directory_is_gone(conversation: ConversationRef, root: Path) -> None:
    uploads.put(conversation, "a", b"x")
    root.rename(root.with_name("elsewhere"))
    purges.run(purge(conversation).pk)
    assert not Workspace.objects.exists()


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
