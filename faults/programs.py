"""The processes of convserver that a run kills, freezes and starts again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

from faults.waits import STOP_WAIT_S

ROOT = Path(__file__).resolve().parent.parent
OWN_PREFIXES = ("CONVSERVER_", "LLM_", "DJANGO_")
OWN_NAMES = {"DATABASE_URL", "REDIS_URL", "HOST", "PORT", "SECRET_KEY", "SESSION_API_KEY"}
"""What convserver reads: a developer's shell must not change what is tried."""


class Program:
    """One process, which may have a successor under the same name."""

    def __init__(self, name: str, command: Sequence[str], variables: Mapping[str, str], place: Path) -> None:
        """`command` is a module and its arguments; `place` is the directory of logs."""
        self.name = name
        self._command = command
        self._variables = {**plain_environment(), **variables}
        self._log = place / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.is_frozen = False

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it unless it runs; do not wait until it answers."""
        if self.is_running:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._command],
                cwd=ROOT,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process is not None:
            self._process.send_signal(SIGKILL)
            self._process.wait(STOP_WAIT_S)
            self.is_frozen = False

    def freeze(self) -> None:
        """Stop it where it is."""
        os.kill(self.pid, SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, SIGCONT)
        self.is_frozen = False

    def log(self) -> str:
        """Return what it and its predecessors have written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


def plain_environment() -> dict[str, str]:
    """Return this process's variables but for those that convserver reads."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(OWN_PREFIXES) and name not in OWN_NAMES
    }
