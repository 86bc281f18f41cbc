"""A Redis of a test's own: stopped, frozen and started again without harm to the shared one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import msgpack
import pytest
import redis
from django.conf import settings

from tests.support.servers.ports import free_port
from tests.support.wires.network import wait_until

PROGRAM = shutil.which("redis-server")
PASSWORD = "a password"


class RedisServer:
    """A redis-server on a free port of loopback; not started yet."""

    def __init__(self, directory: Path) -> None:
        if PROGRAM is None:
            pytest.skip("there is no redis-server on this machine")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [
            *(str(PROGRAM), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
            *("--dir", str(self._directory), *options),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(self._answers)

    def stop(self) -> None:
        """End it at once; nothing if it does not run."""
        if self._process is not None:
            self._process.send_signal(SIGKILL)
            self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it take connections and answer nothing meanwhile."""
        assert self._process is not None
        self._process.send_signal(SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(SIGCONT)

    def ask(self, *command: str, password: str | None = None) -> Any:
        with redis.Redis(port=self.port, password=password, socket_timeout=5) as client:
            return client.execute_command(*command)

    def publish(self, group: str, message: Any) -> int:
        """Send a message to a group, packed unless it is bytes; return how many connections received it."""
        data = message if isinstance(message, bytes) else msgpack.packb(message)
        with redis.Redis(port=self.port, socket_timeout=5) as client:
            return int(client.publish(f"{settings.HINTS_PREFIX}__group__{group}", data))

    def _answers(self) -> bool:
        try:
            self.ask("PING")
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False
        return True
