"""The processes of convserver that a run breaks: started quickly, killed, frozen, and started again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import httpx

from faults.waits import START_WAIT_S, STOP_WAIT_S
from tests.support.runner import forks

LOOK_S = 0.05


class ServerProcess:
    """One server, which may have successors on its port."""

    def __init__(
        self,
        port: int,
        place: Path,
        variables: Mapping[str, str],
        *,
        options: Sequence[str] = (),
        run_by: Sequence[str] = (),
    ) -> None:
        """`options` are those of `faults.entry`; `run_by` is a program that becomes the server."""
        self.port = port
        self.log = place / f"server-{port}.log"
        self._command = ["faults.entry", *options, "--", "convserver", "serve"]
        self._variables = {**variables, "PORT": str(port)}
        self._run_by = run_by
        self._process: forks.Running | None = None

    @property
    def pid(self) -> int:
        """The process that runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself, or was never started."""
        return self._process is None or self._process.poll() is not None

    def launch(self) -> None:
        """Start it, and do not wait for it."""
        with self.log.open("ab") as log:
            self._process = forks.start(
                self._command, self._variables, stdout=log, stderr=log, run_by=self._run_by
            )

    async def start(self) -> None:
        """Start it, and return once it is ready to serve. Raise RuntimeError if it does not become so."""
        self.launch()
        give_up_at = time.monotonic() + START_WAIT_S
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
            while not await self._answers(client):
                if self.has_ended or time.monotonic() > give_up_at:
                    raise RuntimeError(f"The server did not start: see {self.log}.")
                await asyncio.sleep(LOOK_S)

    async def _answers(self, client: httpx.AsyncClient) -> bool:
        try:
            return (await client.get(f"http://127.0.0.1:{self.port}/health")).is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """End it at once."""
        self._end(SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._end(SIGTERM)

    def freeze(self) -> None:
        """Stop it where it is."""
        os.kill(self.pid, SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, SIGCONT)

    def _end(self, signal: int) -> None:
        if self._process is not None:
            self._process.send_signal(signal)
            self._process.wait(STOP_WAIT_S)
            self._process = None
