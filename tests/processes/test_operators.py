"""What operators are told of processes: by the probes and metrics of servers and of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from prometheus_client.parser import text_string_to_metric_families

from conversations.events import ConversationRef
from sessions_app.models import ProcessRecord
from tests.conftest import on_postgresql, on_sqlite
from tests.support.people.clients import HTTP, Server
from tests.support.servers.clusters import NATIVE, Cluster, serving_cluster, workers_of
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.no_second_try

QUICK = {"sessions_app.operation.heartbeats.BEAT_S": 0.2, "sessions_app.operation.figures.KEPT_S": 0.1}


def metrics(server: Server) -> dict[tuple[str, ...], float]:
    """Return all samples of a process by name and the values of their labels."""
    answer = HTTP.get(f"{server.url}/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def processes(server: Server) -> str:
    """Return what the health probe says of all processes."""
    return HTTP.get(f"{server.url}/health").headers["X-Processes"]


def until_missed(process: Server) -> None:
    """Wait until the metrics and the health probe of a process say that a worker is gone."""
    wait_until(lambda: metrics(process)["convserver_processes", "worker", "gone"] == 1)
    assert metrics(process)["convserver_problem", "process_gone"] == 1
    wait_until(lambda: processes(process).startswith("a process is gone since 2"))


@pytest.fixture
def cluster(
    django_db_setup: None, django_db_blocker: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("web")
    with (
        django_db_blocker.unblock(),
        serving_cluster(directory, **QUICK) as serving,
        workers_of(serving, tmp_path) as cluster,
    ):
        yield cluster


@on_postgresql
def test_a_killed_worker_is_missed_by_every_process_and_a_stopped_one_by_none(cluster: Cluster) -> None:
    stopped, killed, left = (cluster.start_worker(**QUICK) for _ in range(3))
    alive, gone = ("convserver_processes", "worker", "alive"), ("convserver_processes", "worker", "gone")
    wait_until(lambda: metrics(cluster.web)[alive] == 3)
    assert processes(cluster.web) == "ok"
    stopped.stop()
    wait_until(lambda: metrics(cluster.web)[alive] == 2)
    assert metrics(cluster.web)[gone] == 0
    killed.kill()
    for process in (cluster.web, left):
        until_missed(process)
    left.kill()
    talk = uuid4().hex
    HTTP.post(f"{cluster.web.url}{NATIVE}", json={"id": talk}).raise_for_status()
    cluster.say(talk, "Is anybody there?")
    wait_until(lambda: metrics(cluster.web)["convserver_oldest_unanswered_seconds",] > 0)
    assert metrics(cluster.web)["convserver_unanswered_conversations",] == 1


@on_postgresql
def test_sessions_of_postgresql_are_named_after_their_process(cluster: Cluster) -> None:
    worker = cluster.start_worker()
    statement = "SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database()"
    names = [name for (name,) in cluster.ask(statement) if name]
    assert any(name.startswith(f"convserver serve {cluster.web.pid} ") for name in names), names
    assert any(name.startswith(f"convserver worker {worker.pid} ") for name in names), names


@on_sqlite
def test_a_server_has_a_row_while_it_runs_and_one_that_was_killed_is_not_missed_after_its_restart(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(constants=QUICK)
    wait_until(lambda: ProcessRecord.objects.running().count() == 1)
    server.kill()
    server.start(constants=QUICK)
    wait_until(lambda: ProcessRecord.objects.running().count() == 2)
    wait_until(lambda: processes(server) == "ok")
    assert metrics(server)["convserver_processes", "server", "gone"] == 0
    server.stop()
    wait_until(lambda: ProcessRecord.objects.exclude(ended_at=None).count() == 1)


@on_sqlite
def test_appends_and_probes_go_on_while_heartbeats_cannot_be_stored(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(constants=QUICK)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE sessions_app_processrecord")
    try:
        wait_until(lambda: "The heartbeat could not be stored" in server.log.read_text())
        event = {"type": "event", "id": "e1", "event": {"action": "message", "source": "user", "args": {}}}
        assert HTTP.post(f"{server.url}{NATIVE}/talk/events", json=event).status_code == 200
        assert HTTP.get(f"{server.url}/health").status_code == 200
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(ProcessRecord)
    wait_until(lambda: "The heartbeat is stored again" in server.log.read_text())
