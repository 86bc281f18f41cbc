"""docker-compose.yml: nothing in it is open with a password that everybody knows."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from convserver import __version__
from tests.support.servers.ports import free_port
from tests.support.servers.redis_server import PROGRAM
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.one_engine

PASSWORD = "lettersand123"
TEXT = (Path(__file__).parents[2] / "docker-compose.yml").read_text()
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]


def test_every_password_comes_from_the_environment_and_has_no_default() -> None:
    named = re.findall(r"\$\{(\w+PASSWORD)([^}]*)\}", TEXT)
    assert {name for name, _ in named} == {"POSTGRES_PASSWORD", "REDIS_PASSWORD"}
    for name, otherwise in named:
        assert otherwise.startswith(f":?Set {name}"), "without it, `docker compose` must end with a sentence"


def test_the_server_brings_both_passwords() -> None:
    environment = SERVICES["web"]["environment"]
    assert re.search(r"://convserver:\$\{POSTGRES_PASSWORD[^}]*\}@postgres:", environment["DATABASE_URL"])
    assert re.search(r"://:\$\{REDIS_PASSWORD[^}]*\}@redis:", environment["REDIS_URL"])


def test_only_who_knows_the_password_can_use_redis(tmp_path: Path) -> None:
    if PROGRAM is None:
        pytest.skip("there is no redis-server on this machine")
    *shell, script = SERVICES["redis"]["command"]
    port = free_port()
    command = f"{script.replace('$$', '$')} --port {port} --bind 127.0.0.1"
    # In a group of its own: the shell's end would not end what it has started.
    process = subprocess.Popen(
        [*shell, command],
        cwd=tmp_path,
        env=os.environ | {"REDISCLI_AUTH": PASSWORD},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with redis.Redis(port=port, password=PASSWORD) as known, redis.Redis(port=port) as stranger:
            wait_until(lambda: _answers(known))
            with pytest.raises(redis.AuthenticationError):
                stranger.ping()
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_no_image_floats(subtests: pytest.Subtests) -> None:
    dockerfile = (Path(__file__).parents[2] / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert len(set(bases)) == 1
    images = {name: service["image"] for name, service in SERVICES.items()} | {"Dockerfile": bases[0]}
    for name, image in images.items():
        with subtests.test(name):
            assert re.search(r":\d+\.\d+(\.\d+)?(-[a-z-]+)?(@sha256:[0-9a-f]{64})?$", image), image
    assert SERVICES["web"]["image"] == f"convserver:{__version__}"


def test_the_image_can_dump_the_database(subtests: pytest.Subtests) -> None:
    clients = {"bookworm": 15, "trixie": 17}
    release = re.search(
        r"^FROM \S+-slim-(\w+)$", (Path(__file__).parents[2] / "Dockerfile").read_text(), re.M
    )
    server = re.search(r":(\d+)", SERVICES["postgres"]["image"])
    assert release is not None
    assert server is not None
    assert clients[release[1]] >= int(server[1])


def test_no_service_can_write_to_its_image_or_become_more_than_it_is(subtests: pytest.Subtests) -> None:
    for name, service in SERVICES.items():
        with subtests.test(name):
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert service["mem_limit"]
            assert service["pids_limit"]
            # The image's own user is not root, either: `USER` in the Dockerfile.
            assert "user" in service or service["image"] == SERVICES["web"]["image"]


def test_copies_of_uploaded_files_are_on_the_disk() -> None:
    for name in ("web", "web-2", "worker", "worker-2", "backup"):
        assert "/tmp" in SERVICES[name]["volumes"]
