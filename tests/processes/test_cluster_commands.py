"""What is asked of a server of a cluster, which runs no loop: a worker obeys, by hints or by looking."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.events import Kind
from conversations.models import ConversationRef, Version
from conversations.store import creation
from tests.conftest import on_postgresql
from tests.processes.test_commands_across_processes import (
    AGENT,
    NATIVE,
    STOPPED,
    WITHIN_S,
    agent_face,
    go_on,
    hang,
    loop_of,
    post,
    say,
    texts,
    until_status,
    wait,
)
from tests.support.people.clients import Server, Worker

pytestmark = [on_postgresql, pytest.mark.needs_engine]

NEVER = {
    "sessions_app.loops.command_channel.LOOK_S": 3600.0,
    "sessions_app.loops.cluster.managers.WORKER_SWEEP_S": 3600.0,
    "sessions_app.live.hub.POLL_S": 3600.0,
}
"""So only hints tell a worker of anything."""
LOST = "lost"
HINTED_WITHIN_S = 3.0
"""A second is promised; a machine that tests keep busy is given more."""
HINTS: dict[str, dict[str, str]] = {"Redis": {}, "PostgreSQL": {"REDIS_URL": ""}, LOST: {}}


class Cluster(NamedTuple):
    """One server and one worker."""

    web: Server
    hints: str

    @contextmanager
    def soon(self) -> Iterator[None]:
        """Fail if the block takes longer than a command may, with hints or without."""
        began = time.monotonic()
        yield
        assert time.monotonic() - began < (WITHIN_S if self.hints == LOST else HINTED_WITHIN_S)


@pytest.fixture(scope="module", params=HINTS)
def cluster(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """A cluster for all tests of the file with hints of one kind."""
    hints = request.param
    variables = {"CONVSERVER_MANAGER": "clustered", "CONVSERVER_AGENT": AGENT, **HINTS[hints]}
    with django_db_blocker.unblock(), ExitStack() as running:
        web, worker = Server(tmp_path_factory.mktemp("web")), Worker(tmp_path_factory.mktemp("worker"))
        for each in (web, worker):
            running.callback(each.kill)
        heard = "another" if hints == LOST else settings.TEST_RUN
        web.start(constants={}, CONVSERVER_TEST_RUN=heard, **variables)
        worker.start(constants={} if hints == LOST else NEVER, **variables)
        yield Cluster(web, hints)


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id=uuid4().hex)


@pytest.fixture
def talk_of_v1(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id=uuid4().hex, version=Version.V1)


def test_a_stop_has_ended_the_turn_when_it_is_answered(cluster: Cluster, talk: ConversationRef) -> None:
    hang(cluster.web, talk)
    with cluster.soon():
        answer = post(cluster.web, f"{NATIVE}/{talk.public_id}/stop")
    assert (answer.status_code, answer.json()["loop"]["status"]) == (200, "stopped")
    assert texts(talk, Kind.TURN) == [STOPPED]


def test_a_pause_and_a_run_are_obeyed(cluster: Cluster, talk: ConversationRef) -> None:
    wait(cluster.web, talk)
    with cluster.soon():
        assert post(cluster.web, f"{NATIVE}/{talk.public_id}/pause").status_code == 200
    go_on(talk)
    until_status(talk, "paused")
    with cluster.soon():
        assert post(cluster.web, f"{NATIVE}/{talk.public_id}/run").status_code == 200
    until_status(talk, "finished")
    assert (loop_of(talk).epoch, len(texts(talk, Kind.TURN))) == (1, 1)


def test_an_interruption_is_obeyed(cluster: Cluster, talk_of_v1: ConversationRef) -> None:
    hang(cluster.web, talk_of_v1)
    with cluster.soon():
        assert post(cluster.web, f"{agent_face(talk_of_v1)}/interrupt").status_code == 200
        until_status(talk_of_v1, "paused")
    assert loop_of(talk_of_v1).status == "running"


def test_an_approval_is_obeyed(cluster: Cluster, talk: ConversationRef) -> None:
    say(cluster.web, talk, "approve")
    until_status(talk, "waiting_for_confirmation")
    with cluster.soon():
        answer = post(cluster.web, f"{NATIVE}/{talk.public_id}/confirm", accept=True)
        assert answer.status_code == 200
        until_status(talk, "finished")
    assert (loop_of(talk).epoch, len(texts(talk, Kind.TOOL_RESULT))) == (1, 1)
