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

from tests.network import wait_until
from tests.ports import free_port
from tests.redis_server import PROGRAM

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
