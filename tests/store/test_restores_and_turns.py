"""A restore of files and a turn that begins meanwhile: the one waits for the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conversations.events import ConversationRef
from conversations.exceptions import ConversationBusy
from conversations.log import writes
from sessions_app import astore
from sessions_app.checkpoints import kept, program, turns
from sessions_app.checkpoints.errors import AgentAtWork
from sessions_app.checkpoints.kept import NewCheckpoint
from sessions_app.loops import leases
from sessions_app.loops.turns import begin_turn
from sessions_app.models import CheckpointCause, FilesCheckpoint
from sessions_app.processes import this_process
from sessions_app.sandbox.base import SandboxName
from sessions_app.workspaces import records
from tests.support.people.scripted_agent import asking
from tests.support.servers import sandboxes


class Held:
    """A run of git that waits before it begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: str) -> None:
        self.is_there, self.go = asyncio.Event(), asyncio.Event()
        run = program.run

        async def running(conversation: ConversationRef, action: str, *rest: str, **options: Any) -> str:
            if action == held:
                self.is_there.set()
                await self.go.wait()
            return await run(conversation, action, *rest, **options)

        monkeypatch.setattr(program, "run", running)


@pytest.fixture(autouse=True)
def sandboxed(configured: Callable[..., None], tmp_path: Path) -> None:
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")


@pytest.fixture
async def file(v0_talk: ConversationRef) -> Path:
    """A file in the workspace, of which an earlier state is kept."""
    directory = await astore.call(records.directory_of, v0_talk)
    found = directory / "file"
    await asyncio.to_thread(found.write_text, "as before")
    await kept.take(v0_talk, NewCheckpoint(0, CheckpointCause.TURN), timeout_s=60)
    await asyncio.to_thread(found.write_text, "as now")
    return found


async def begun(talk: ConversationRef) -> None:
    await astore.change(writes.append, talk, [asking("hello")])
    epoch = await astore.change(leases.claim, talk, this_process(), agent="an agent")
    await astore.change(leases.ready, talk, epoch)
    assert await astore.change(begin_turn, talk, epoch) is not None


async def test_a_turn_that_begins_during_a_restore_uses_no_file_until_its_end(
    v0_talk: ConversationRef, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = await astore.call(kept.all_of, v0_talk)
    held = Held(monkeypatch, "restore")
    restoring = asyncio.ensure_future(kept.restore(v0_talk, first))
    await held.is_there.wait()
    await begun(v0_talk)
    using = asyncio.ensure_future(turns.before_use(v0_talk, changes=False))
    using.add_done_callback(lambda _: seen.append(file.read_text()))
    seen: list[str] = []
    await asyncio.wait({using}, timeout=0.5)
    held.go.set()
    await restoring
    assert (await using, seen) == ("", ["as before"])


async def test_a_restore_ends_without_a_change_if_a_turn_begins_before_it_makes_any(
    v0_talk: ConversationRef, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = await astore.call(kept.all_of, v0_talk)
    held = Held(monkeypatch, "take")
    restoring = asyncio.ensure_future(kept.restore(v0_talk, first))
    await held.is_there.wait()
    with pytest.raises(ConversationBusy):
        await kept.restore(v0_talk, first)
    await begun(v0_talk)
    held.go.set()
    with pytest.raises(AgentAtWork):
        await restoring
    assert await asyncio.to_thread(file.read_text) == "as now"
    assert await asyncio.wait_for(turns.before_use(v0_talk, changes=False), 30) == ""
    assert await astore.call(FilesCheckpoint.objects.of(v0_talk).count) == 2
