"""Processes that serve and workers on one PostgreSQL: what is asked of the ones is done by the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from sessions_app.loops.cluster import wakeups
from tests.support.people.clients import HTTP, Server, program_environment
from tests.support.runner import forks
from tests.support.servers.clusters import NATIVE, Cluster, serving_cluster, workers_of
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = pytest.mark.skipif(connection.vendor != "postgresql", reason="a cluster needs PostgreSQL")

GOING_ON = "tests.support.people.agents.CutOffAgent"
CUT_OFF = "cut off"


@pytest.fixture(scope="module")
def serving(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, dict[str, str]]]:
    """A process that serves for the whole file: conversations have ids of their own."""
    with django_db_blocker.unblock(), serving_cluster(tmp_path_factory.mktemp("web")) as serving:
        yield serving


@pytest.fixture
def cluster(serving: tuple[Server, dict[str, str]], tmp_path: Path) -> Iterator[Cluster]:
    """The process that serves, and what starts workers for one test."""
    with workers_of(serving, tmp_path) as cluster:
        yield cluster


@pytest.fixture
def talk(serving: tuple[Server, dict[str, str]]) -> str:
    """The id of a new conversation."""
    answer = HTTP.post(f"{serving[0].url}{NATIVE}", json={"id": uuid4().hex})
    return str(answer.json()["id"])


def test_each_message_is_a_job_and_what_agents_say_is_none(cluster: Cluster, talk: str) -> None:
    for text in ("one", "two", "three"):
        cluster.say(talk, text)
    assert cluster.jobs() == 3
    worker = cluster.start_worker()
    wait_until(lambda: bool(cluster.texts(talk, "turn")))
    wait_until(lambda: cluster.jobs() == 0)
    assert cluster.texts(talk, "message")[-1].endswith("three")
    assert cluster.holder(talk) == worker.pid
    [(last,)] = cluster.ask("SELECT last_value FROM procrastinate_jobs_id_seq")
    cluster.say(talk, "four")
    wait_until(lambda: len(cluster.texts(talk, "turn")) == 2)
    assert cluster.ask("SELECT last_value FROM procrastinate_jobs_id_seq") == [(last + 1,)]


MANY_JOBS = """
from sessions_app.loops.cluster import wakeups
from django.db import connection
wakeups.TRIM_S = 0.0
most = 0
for _ in range({messages} // 400):
    for _ in range(40):
        wakeups._defer([1] * 10)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM procrastinate_jobs")
        most = max(most, *cursor.fetchone())
    wakeups.trim()
assert 0 < most < 1000, most
"""
"""400 are more than are asked in the 4 s between two looks on a machine with two cores."""


def test_jobs_stay_few_after_a_hundred_thousand_messages_that_no_worker_took(
    cluster: Cluster, is_full: bool, tmp_path: Path
) -> None:
    code = MANY_JOBS.format(messages=100_000 if is_full else 2_000)
    environment = {**program_environment(tmp_path), **cluster.variables}
    ended = forks.run(["convserver", "manage", "shell", "-v0", "-c", code], environment)
    assert ended.returncode == 0, ended.stderr
    assert cluster.jobs() == wakeups.KEPT_MAX
    cluster.ask("DELETE FROM procrastinate_jobs")


@pytest.mark.no_second_try
def test_a_message_whose_job_was_deleted_is_answered(cluster: Cluster, talk: str) -> None:
    cluster.say(talk, "hello")
    cluster.ask("DELETE FROM procrastinate_jobs")
    cluster.start_worker()
    wait_until(lambda: cluster.texts(talk, "message") == ["hello", "You said: hello"])


def test_what_a_server_stores_is_indexed_by_a_worker_that_is_told(cluster: Cluster, talk: str) -> None:
    cluster.start_worker(
        **{"sessions_app.search_indexer.POLL_S": 3600.0, "sessions_app.live.hub.POLL_S": 3600.0}
    )
    frame = {"type": "event", "id": uuid4().hex, "event": {"action": "message", "args": {"content": "hello"}}}
    assert HTTP.post(f"{cluster.web.url}{NATIVE}/{talk}/events", json=frame).status_code == 200
    [(newest,)] = cluster.ask("SELECT max(id) FROM conversations_event")
    wait_until(lambda: cluster.ask("SELECT words_through FROM conversations_searchprogress")[0][0] >= newest)


def test_readers_elsewhere_see_an_answer_while_it_is_written_and_stop_it(cluster: Cluster, talk: str) -> None:
    cluster.start_worker(GOING_ON)
    with NetworkClient(cluster.web, talk) as reader:
        reader.send({"type": "message", "text": "/slow"})
        reader.until("delta")
        reader.send({"type": "stop", "id": "s"})
        assert reader.until("event", kind="turn")["text"].startswith("stopped")


@pytest.mark.no_second_try
def test_a_worker_that_is_killed_is_replaced_and_its_turn_marked_once(cluster: Cluster, talk: str) -> None:
    dead = cluster.start_worker()
    cluster.say(talk, "hang")
    wait_until(lambda: bool(cluster.texts(talk, "tool_call")))
    other = cluster.start_worker()
    dead.kill()
    wait_until(lambda: bool(cluster.texts(talk, "turn")))
    cluster.say(talk, "hello")
    wait_until(lambda: len(cluster.texts(talk, "turn")) == 2)
    assert "interrupted" in cluster.texts(talk, "turn")[0]
    assert cluster.texts(talk, "message")[-1] == "You said: hello"
    assert cluster.holder(talk) == other.pid


def test_a_worker_that_is_stopped_hands_its_turn_over_at_once(cluster: Cluster, talk: str) -> None:
    leaving = cluster.start_worker(GOING_ON)
    cluster.say(talk, CUT_OFF)
    wait_until(lambda: bool(cluster.texts(talk, "tool_call")))
    other = cluster.start_worker(GOING_ON)
    leaving.stop()
    wait_until(lambda: cluster.holder(talk) == other.pid or bool(cluster.ask(_UNKNOWN, talk)))
    assert cluster.texts(talk, "turn") == []
    assert "A turn is handed over" in leaving.log.read_text()


_UNKNOWN = (
    "SELECT 1 FROM sessions_app_agentloop AS loop JOIN conversations_conversation AS c "
    "ON c.id = conversation_id WHERE public_id = %s AND execution_status = 'waiting_for_confirmation'"
)


def test_a_turn_that_waits_for_approval_is_stopped_while_there_is_no_worker(
    cluster: Cluster, talk: str
) -> None:
    worker = cluster.start_worker()
    cluster.say(talk, "approve")
    wait_until(lambda: bool(cluster.texts(talk, "state")) and bool(cluster.ask(_UNKNOWN, talk)))
    worker.stop()
    with NetworkClient(cluster.web, talk) as reader:
        reader.until("replay_complete")
        reader.send({"type": "stop", "id": "s"})
        assert reader.until("event", kind="turn")["text"].startswith("stopped")


@pytest.mark.slow
def test_a_process_that_serves_imports_no_library_of_models(cluster: Cluster, tmp_path: Path) -> None:
    variables = {**program_environment(tmp_path), **cluster.variables, "LLM_MODEL": "openai/none"}
    run = subprocess.run(
        [sys.executable, "-c", _SERVED],
        env={**variables, "LLM_API_KEY": "none", "DJANGO_SETTINGS_MODULE": "convserver.settings"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines()[-1] == "[]"


_SERVED = """
import asyncio, sys, httpx, convserver.asgi
async def served():
    transport = httpx.ASGITransport(convserver.asgi.application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        made = await client.post("/api/native/conversations", json={})
        path = "/api/native/conversations/" + made.json()["id"]
        said = await client.post(path + "/events", json={"type": "message", "text": "Hello"})
        assert said.status_code == 200, said.text
        assert (await client.get(path)).status_code == 200
        assert (await client.get("/c/" + made.json()["id"])).status_code == 200
asyncio.run(served())
print([name for name in ("pydantic_ai", "openai", "anthropic", "mcp") if name in sys.modules])
"""
