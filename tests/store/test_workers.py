"""What a worker of a cluster does first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore, background
from sessions_app.loops.cluster import managers
from sessions_app.loops.cluster.managers import WorkerConversationManager
from sessions_app.loops.manager import close_manager, get_manager
from tests.conftest import on_postgresql
from tests.support.people.scripted_agent import Stage, ask, asking, stage, until_here

pytestmark = [on_postgresql, pytest.mark.needs_engine]

__all__ = ["stage"]


@pytest.fixture
async def worker(
    stage: Stage,
    database: None,
    configured: Callable[..., None],
    settings: object,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[WorkerConversationManager]:
    """The worker of this test's event loop, whose agents are staged; it plays one turn at a time."""
    configured(agent="tests.support.people.scripted_agent.ScriptedAgent")
    name = f"{WorkerConversationManager.__module__}.{WorkerConversationManager.__name__}"
    monkeypatch.setattr(settings, "CONVERSATION_MANAGER", name)
    monkeypatch.setattr(WorkerConversationManager, "concurrency", 1)
    monkeypatch.setattr(managers, "WORKER_SWEEP_S", 3600.0)
    monkeypatch.setattr(managers, "ROOM_LOOK_S", 2.0)
    monkeypatch.setattr(managers, "FIRST_WAIT_S", 60.0)
    manager = get_manager()
    assert isinstance(manager, WorkerConversationManager)
    yield manager
    stage.go.set()
    await background.close()
    await close_manager()


def talk(user: User, name: str) -> ConversationRef:
    return creation.create(user, conversation_id=name, version=Version.V0, title="A talk")


async def test_what_a_dead_worker_has_left_gets_room_before_new_messages(
    worker: WorkerConversationManager, stage: Stage, alice: User
) -> None:
    held, left, new = [await astore.call(talk, alice, name) for name in ("held", "left", "new")]
    await ask(held, "hold this")
    await stage.holding()
    await astore.append(left, [asking("left")])
    worker._own(worker._take_over(left))
    await until_here(lambda: worker._first)
    stage.go.set()
    await until_here(lambda: worker._has_room)  # the one that waits looks for it again later
    await astore.append(new, [asking("new")])
    worker._own(worker._woken(new.pk, False))
    await until_here(lambda: len(stage.asked) == 3)
    assert stage.asked[1:] == [["left"], ["new"]]
