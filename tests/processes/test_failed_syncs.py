"""A disk that fails to sync SQLite's log: what may be stored all the same is called unknown."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from conversations.engines import failures
from tests.conftest import on_sqlite
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server
from tests.support.runner import migrated
from tests.support.wires.network import NetworkClient

pytestmark = [on_sqlite, pytest.mark.no_second_try]

SOURCE = Path(__file__).parents[1] / "failing_sync.c"
EVENT = json.loads(event().payload)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes syncs fail."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler here")
    built = tmp_path_factory.mktemp("library") / "failing_sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, SOURCE, "-ldl"], check=True)
    return built


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file exists, syncs fail."""
    return tmp_path_factory.mktemp("mark") / "syncs fail"


@pytest.fixture(scope="module")
def server(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory, library: Path, mark: Path
) -> Iterator[Server]:
    """A server on a database of its own, on such a disk."""
    run_by = ["env", f"LD_PRELOAD={library}", f"FAILING_SYNC={mark}"]
    server = Server(tmp_path_factory.mktemp("server"), run_by=run_by)
    migrated.make(str(server.file))
    server.start(DATABASE_URL="")
    try:
        assert create(server, "talk").status_code == 201
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def synced_afterwards(mark: Path) -> Iterator[None]:
    """Let syncs work again after each test."""
    yield
    mark.unlink(missing_ok=True)


def create(server: Server, id: str, *, key: str = "a-key") -> httpx.Response:
    address = f"{server.url}/api/native/conversations"
    return HTTP.post(address, json={"id": id}, headers={"Idempotency-Key": key})


def test_an_event_whose_commit_was_not_synced_is_called_unknown_and_is_stored_once_when_it_is_repeated(
    server: Server, mark: Path
) -> None:
    frame = {"type": "event", "id": "an id", "event": EVENT}
    with NetworkClient(server, "talk") as client:
        client.until("replay_complete")
        mark.touch()
        client.send(frame)
        assert client.until("error", id="an id")["code"] == "outcome_unknown"
    server.kill()  # the next start finds it in the log, unless another failed commit was written over it
    mark.unlink()
    server.start(DATABASE_URL="")
    with NetworkClient(server, "talk") as client:
        client.send(frame)
        assert client.until("ack", id="an id")["seq"] == 0
    events = HTTP.get(f"{server.url}/api/native/conversations/talk/events").json()["events"]
    assert [each["id"] for each in events] == ["an id"]


def test_a_change_whose_commit_was_not_synced_is_called_unknown(
    server: Server, mark: Path, subtests: pytest.Subtests
) -> None:
    native = f"{server.url}/api/native/conversations"
    address = f"{native}/talk"
    requests = {
        "an event": ("POST", f"{address}/events", {"type": "event", "id": "b", "event": EVENT}),
        "a change": ("PATCH", address, {"title": "Another title"}),
        "a creation": ("POST", native, {"id": "another"}),
        "a fork": ("POST", f"{address}/fork", {}),
        "a deletion": ("DELETE", address, None),
        "settings": ("POST", f"{server.url}/api/settings", {"language": "en"}),
    }
    mark.touch()
    for name, (method, path, body) in requests.items():
        with subtests.test(name):
            answer = HTTP.request(method, path, json=body)
            assert answer.status_code == 503
            assert answer.json().get("code") in ("outcome_unknown", None if name == "settings" else "")
            assert "Retry-After" not in answer.headers


def test_a_creation_under_a_key_is_made_once_when_the_disk_syncs_again(server: Server, mark: Path) -> None:
    key = uuid4().hex
    mark.touch()
    assert failures.UNKNOWN in create(server, "later", key=key).text
    mark.unlink()
    answers = [create(server, "later", key=key) for _ in range(2)]
    assert [(each.status_code, each.json()["id"]) for each in answers] == [(201, "later")] * 2
