"""What clients change in a branch whose files are still being copied: after them, or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.models import Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.checkpoints import copies
from sessions_app.checkpoints import kept as checkpoints
from sessions_app.checkpoints.kept import NewCheckpoint
from sessions_app.identity.conversation_keys import key_of
from sessions_app.models import CheckpointCause, FilesCopy
from sessions_app.sandbox.base import SandboxName
from sessions_app.shell_commands import kept
from sessions_app.workspaces import records
from tests.support.people.commands import require_bubblewrap

pytestmark = pytest.mark.one_engine

Change = Callable[[ConversationRef], Awaitable[httpx.Response]]
WAITING = "The files of this branch are still being copied. Try again in a minute."


@pytest.fixture(autouse=True)
async def sandboxed(tmp_path: Path, configured: Callable[..., None]) -> AsyncIterator[None]:
    configured(workspaces=tmp_path / "workspaces", sandbox=SandboxName.AUTO)
    require_bubblewrap()
    yield
    await kept.close()


async def branch_of(alice: User, version: Version) -> ConversationRef:
    """Return a branch whose files, `a` and `b`, are not copied yet."""
    source = await astore.call(lambda: creation.create(alice, version=version))
    files = await astore.call(records.directory_of, source)
    for name in "ab":
        (files / name).write_text("of the source")
    await checkpoints.take(source, NewCheckpoint(-1, CheckpointCause.TURN), timeout_s=60)
    return await astore.change(partial(copies.fork, alice, source))


def doors(rest: httpx.AsyncClient) -> dict[str, tuple[Version, Change]]:
    """Return how clients write the file `a`, or look at it."""
    file = {"files": ("a", b"of the client")}

    def key(branch: ConversationRef) -> dict[str, str]:
        return {"x-session-api-key": key_of(branch)}

    async def v0(branch: ConversationRef) -> httpx.Response:
        return await rest.post(f"/api/conversations/{branch.public_id}/upload-files", files=file)

    async def v1(branch: ConversationRef) -> httpx.Response:
        sent = {"file": ("a", b"of the client")}
        path = {"path": "/workspace/project/a"}
        return await rest.post("/api/file/upload", params=path, files=sent, headers=await asked(branch))

    async def command(branch: ConversationRef) -> httpx.Response:
        body = {"command": "cat a && echo -n of the client >a"}
        return await rest.post("/api/bash/execute_bash_command", json=body, headers=await asked(branch))

    async def asked(branch: ConversationRef) -> dict[str, str]:
        return await astore.call(key, branch)

    return {
        "V0 upload": (Version.V0, v0),
        "V1 upload": (Version.V1, v1),
        "V1 command": (Version.V1, command),
    }


async def test_it_comes_after_the_files_of_the_source(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, (version, change) in doors(rest).items():
        with subtests.test(name):
            branch = await branch_of(alice, version)
            answer = await change(branch)
            assert answer.status_code == 200, answer.text
            await copies.finish_some()
            files = await astore.call(records.directory_of, branch)
            contents = {each.name: each.read_text() for each in files.iterdir()}
            assert contents["b"] == "of the source"
            assert "of the client" in contents.values()
            if name == "V1 command":
                assert answer.json()["stdout"] == "of the source"
            if name == "V0 upload":
                assert contents["a"] == "of the source"


async def test_it_is_refused_with_a_sentence_while_they_cannot_be_copied(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, (version, change) in doors(rest).items():
        with subtests.test(name):
            branch = await branch_of(alice, version)
            files = await astore.call(records.directory_of, branch)
            shadow = await astore.call(records.made_shadow_of, branch)
            owner = shadow.stat()
            with (shadow / "in-use").open("w") as in_use:
                os.chown(shadow / "in-use", owner.st_uid, owner.st_gid)
                fcntl.flock(in_use, fcntl.LOCK_EX)  # as of another run of git
                answer = await change(branch)
            assert (answer.status_code, WAITING in answer.text) == (503, True), answer.text
            assert await FilesCopy.objects.filter(pk=branch.pk).aexists()
            assert list(files.iterdir()) == []
            await copies.finish(branch)
            assert (files / "a").read_text() == "of the source"
