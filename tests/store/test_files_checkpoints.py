"""Checkpoints of workspaces: made after turns, restored exactly, bounded, and copied into branches."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from convserver.variables.sandboxes import SandboxSettings
from sessions_app import astore
from sessions_app.checkpoints import copies, kept, program
from sessions_app.checkpoints.errors import AgentAtWork, CheckpointFailed, CheckpointGone
from sessions_app.checkpoints.kept import NewCheckpoint
from sessions_app.models import CheckpointCause, FilesCheckpoint, FilesCopy
from sessions_app.retention import places
from sessions_app.sandbox.base import SandboxName
from sessions_app.workspaces import records
from tests.conftest import Join
from tests.support.people.model_talks import model, notices_of, said, told
from tests.support.people.scripted_agent import manager
from tests.support.servers import sandboxes
from tests.support.servers.model_server import calling, completion
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

Configured = Callable[..., None]
Picture = dict[str, object]


@pytest.fixture(autouse=True)
def sandboxed(configured: Configured, tmp_path: Path) -> None:
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")


@pytest.fixture
async def files(v0_talk: ConversationRef) -> Path:
    """The workspace of the conversation."""
    return await astore.call(records.directory_of, v0_talk)


def picture(directory: Path, *left_out: str) -> Picture:
    """Return all files and links of a directory: contents, targets, and whether they can be executed."""
    found: Picture = {}
    for each in sorted(directory.rglob("*")):
        name = str(each.relative_to(directory))
        if each.is_symlink():
            found[name] = f"-> {each.readlink()}"
        elif each.is_file() and not any(part in left_out for part in each.parts):
            found[name] = (each.read_bytes(), bool(each.stat().st_mode & 0o100))
    return found


def give(directory: Path) -> None:
    """Let the account of the sandbox own what a test has written."""
    account = directory.stat()
    for each in directory.rglob("*"):
        os.chown(each, account.st_uid, account.st_gid, follow_symlinks=False)


async def until_kept(talk: ConversationRef, count: int) -> None:
    """Wait until a conversation has as many checkpoints: readers see the end of a turn before."""
    rows = FilesCheckpoint.objects.of(talk)
    await asyncio.to_thread(wait_until, lambda: rows.count() >= count, within_s=60)


async def take(talk: ConversationRef, seq: int = 0) -> FilesCheckpoint:
    return await kept.take(talk, NewCheckpoint(seq, CheckpointCause.TURN), timeout_s=60)


async def test_a_turn_that_changes_files_can_be_undone_and_the_agent_reads_that(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    client = await join(talk)
    first = calling(("terminal", {"command": "echo one > a; mkdir d; echo two > d/b; ln -s a l"}))
    async with model(alice, first, completion(["Made."])):
        await said(client, "Make them.")
        await until_kept(talk, 2)
    second = calling(("terminal", {"command": "echo three > a; rm -r d l; echo new > c"}))
    async with model(alice, second, completion(["Changed."])):
        await said(client, "Change them.")
        await until_kept(talk, 4)
    rows = [(each.cause, each.changed) async for each in FilesCheckpoint.objects.of(talk).order_by("pk")]
    assert rows == [("before_turn", 0), ("turn", 3), ("before_turn", 0), ("turn", 4)]
    files = await astore.call(records.directory_of, talk)
    now = picture(files)
    after_first = [row async for row in FilesCheckpoint.objects.of(talk).order_by("pk")][1]
    undo = await kept.restore(talk, after_first)
    assert picture(files) == {"a": (b"one\n", False), "d/b": (b"two\n", False), "l": "-> a"}
    async with model(alice, completion(["I see."])) as asked:
        await said(client, "What now?")
    assert any("restored the files" in text for _, text in told(asked[0]))
    assert any("restored the files" in text for text in notices_of(client.frames))
    await kept.restore(talk, undo)
    assert picture(files) == now


async def test_turns_without_files_have_no_checkpoints(
    v0_talk: ConversationRef, alice: User, join: Join
) -> None:
    view = calling(("str_replace_editor", {"command": "view", "path": "/workspace"}))
    async with model(alice, view, completion(["Nothing."])):
        await said(await join(v0_talk), "Look.")
    assert not await FilesCheckpoint.objects.aexists()


async def test_files_come_back_exactly_whatever_their_names_and_attributes(
    v0_talk: ConversationRef, files: Path
) -> None:
    (files / ".gitattributes").write_text(
        "* text eol=crlf ident filter=evil\n*.u16 working-tree-encoding=UTF-16\n[attr]text -text\n"
    )
    (files / ".gitignore").write_text("*\n")
    (files / ".gitmodules").write_text('[submodule "x"]\n path = x\n')
    for name in ("line\nend", "-option", "tab\t", 'quote"', "\udcff", " ", "git~1", "a\\b", "größe", "con"):
        (files / name).write_bytes(b"$Id$\r\none\n\0two\r")
    (files / "text.u16").write_bytes("größe\n".encode("utf-16"))
    (files / "run").write_text("#!/bin/sh\n")
    (files / "run").chmod(0o755)
    (files / "dangling").symlink_to("/nowhere")
    (files / "out").symlink_to("../../..")
    (files / "file").write_text("file")
    (files / "directory").mkdir()
    (files / "directory" / "inner").write_text("inner")
    give(files)
    before = picture(files)
    checkpoint = await take(v0_talk)
    assert checkpoint.changed == len(before)
    for name in before:
        if not name.startswith("directory"):
            (files / name).unlink()
    (files / "directory" / "inner").unlink()
    (files / "directory").rmdir()
    (files / "directory").symlink_to("/etc")
    (files / "file").mkdir()
    (files / "file" / "now").write_text("a directory")
    (files / "new").write_text("new")
    give(files)
    changed = picture(files)
    undo = await kept.restore(v0_talk, checkpoint)
    assert picture(files) == before
    await kept.restore(v0_talk, undo)
    assert picture(files) == changed


async def test_nested_repositories_keep_their_git_and_get_their_files_back(
    v0_talk: ConversationRef, files: Path
) -> None:
    inner = files / "site"
    (inner / ".git" / "refs").mkdir(parents=True)
    (inner / ".git" / "objects").mkdir()
    (inner / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / ".git" / "config").write_text("[core]\n\tfsmonitor = touch /workspace/evil\n")
    (inner / "page").write_text("one")
    (files / "node_modules" / "x").mkdir(parents=True)
    (files / "node_modules" / "x" / "y").write_text("dependency")
    give(files)
    checkpoint = await take(v0_talk)
    assert checkpoint.changed == 1
    (inner / "page").write_text("two")
    (inner / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    (files / "node_modules" / "x" / "y").write_text("newer")
    await kept.restore(v0_talk, checkpoint)
    assert (inner / "page").read_text() == "one"
    assert (inner / ".git" / "HEAD").read_text() == "ref: refs/heads/other\n"
    assert (files / "node_modules" / "x" / "y").read_text() == "newer"
    assert not (files / "evil").exists()


async def test_a_repository_is_not_lost_to_a_file_that_was_in_its_place(
    v0_talk: ConversationRef, files: Path
) -> None:
    (files / "site").write_text("a file")
    give(files)
    checkpoint = await take(v0_talk)
    (files / "site").unlink()
    (files / "site" / ".git").mkdir(parents=True)
    (files / "site" / ".git" / "HEAD").write_text("head")
    (files / "other").write_text("other")
    give(files)
    with pytest.raises(CheckpointFailed, match="'site' was a file"):
        await kept.restore(v0_talk, checkpoint)
    assert (files / "site" / ".git" / "HEAD").read_text() == "head"
    assert (files / "other").exists()


async def test_an_agent_sees_nothing_of_the_checkpoints_and_they_are_the_sandboxs_alone(
    v0_talk: ConversationRef, alice: User, join: Join
) -> None:
    look = "ls -a / /checkpoints /workspace; find / -name '*.checkpoints' 2>/dev/null; echo x > a"
    async with model(alice, calling(("terminal", {"command": look})), completion(["Nothing."])) as asked:
        await said(await join(v0_talk), "Look.")
    [(_, text)] = [each for each in told(asked[1]) if each[0] == "tool"]
    assert "checkpoints" not in text.replace("cannot access '/checkpoints'", "")
    shadow = await astore.call(records.made_shadow_of, v0_talk)
    files = await astore.call(records.directory_of, v0_talk)
    assert shadow.stat().st_mode & 0o777 == 0o700
    assert shadow.stat().st_uid == files.stat().st_uid


async def test_only_so_many_are_kept_and_the_newest_stay(
    v0_talk: ConversationRef, files: Path, configured: Configured
) -> None:
    configured(sandbox_settings=SandboxSettings(checkpoints=3))
    made = []
    for number in range(8):
        (files / "a").write_text(f"{number}" * 100)
        made.append(await take(v0_talk, number))
    await kept.prune(v0_talk)
    rows = [each async for each in FilesCheckpoint.objects.of(v0_talk).order_by("pk")]
    assert [each.seq for each in rows] == [5, 6, 7]
    with pytest.raises(CheckpointGone):
        await kept.restore(v0_talk, made[0])
    await kept.restore(v0_talk, made[6])
    assert (files / "a").read_text() == "6" * 100
    await kept.prune(v0_talk, most_kb=1)
    assert await FilesCheckpoint.objects.acount() == 1


async def test_what_a_killed_run_has_left_is_in_the_way_of_none(
    v0_talk: ConversationRef, files: Path
) -> None:
    (files / "a").write_text("one")
    await take(v0_talk)
    shadow = await astore.call(records.made_shadow_of, v0_talk)
    for name in ("index.lock", "refs/checkpoints/x.lock", "packed-refs.lock"):
        (shadow / name).write_text("")
    (files / "a").write_text("two")
    checkpoint = await take(v0_talk, 1)
    (files / "a").write_text("three")
    await kept.restore(v0_talk, checkpoint)
    assert (files / "a").read_text() == "two"


async def test_a_branch_gets_the_files_of_its_event(
    v0_talk: ConversationRef, alice: User, files: Path
) -> None:
    (files / "a").write_text("one")
    await take(v0_talk, -1)
    (files / "a").write_text("two")
    await take(v0_talk, 5)
    branch = await astore.change(lambda: copies.fork(alice, v0_talk))
    assert await FilesCopy.objects.acount() == 1
    await copies.finish_some()
    assert not await FilesCopy.objects.aexists()
    copied = await astore.call(records.directory_of, branch)
    assert picture(copied) == {"a": (b"one", False)}
    # It is its own.
    (copied / "a").write_text("three")
    await take(branch, 0)
    assert (files / "a").read_text() == "two"


async def test_a_copy_that_was_begun_before_comes_out_whole(
    v0_talk: ConversationRef, alice: User, files: Path
) -> None:
    (files / "a").write_text("one")
    await take(v0_talk, -1)
    branch = await astore.change(lambda: copies.fork(alice, v0_talk))
    copied = await astore.call(records.directory_of, branch)
    (copied / "a").write_text("o")  # a half
    give(copied)
    await copies.finish(branch)
    assert (copied / "a").read_text() == "one"


async def test_a_purge_removes_checkpoints_with_the_files(v0_talk: ConversationRef, files: Path) -> None:
    (files / "a").write_text("one")
    await take(v0_talk)
    while await astore.change(places.remove_some, v0_talk) is not None:
        pass
    assert [each.name for each in files.parent.iterdir()] == [".convserver-workspaces"]


async def test_nothing_is_kept_or_restored_without_a_sandbox(
    v0_talk: ConversationRef, files: Path, configured: Configured
) -> None:
    checkpoint = await take(v0_talk)
    for sandbox in (SandboxName.OFF, SandboxName.NONE):
        configured(sandbox=sandbox)
        assert not program.are_kept()
        with pytest.raises(CheckpointFailed, match="in a sandbox"):
            await kept.restore(v0_talk, checkpoint)


async def test_files_are_not_restored_while_the_agent_works(
    v0_talk: ConversationRef, alice: User, join: Join, files: Path
) -> None:
    checkpoint = await take(v0_talk)
    client = await join(v0_talk)
    async with model(alice, calling(("terminal", {"command": "sleep 2"})), completion(["Done."])):
        await client.send({"type": "message", "text": "Work."})
        await client.until("event", kind="tool_call")
        with pytest.raises(AgentAtWork):
            await kept.restore(v0_talk, checkpoint)
        await client.until("event", kind="turn")
