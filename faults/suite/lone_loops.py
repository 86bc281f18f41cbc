"""Loops in processes of their own, which the drills stop, continue and let speak."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from uuid import uuid4

import httpx

from faults.clock import Clock
from faults.programs import ROOT
from faults.suite.installations import Installation

WAIT_S = 300.0
LEASE_S = 15.0
"""As those of workers, which renew theirs."""
LOOK_S = 0.05
PLAYING = "playing"
"""What a loop prints when its turn has begun."""
_EPOCH = "SELECT c.loop_epoch FROM conversations_conversation c WHERE c.public_id = {0}"


class LoneLoop:
    """One loop, which says every line that it is given."""

    def __init__(
        self, installation: Installation, talk: str, lease_s: float = LEASE_S, *, off_by_s: float = 0.0
    ) -> None:
        """Start it, on a host whose clock is `off_by_s` off. A lease of the usual length is renewed."""
        self._log = installation.place / "loops.log"
        options = [*installation.options, "--clock", str(_clock(installation, off_by_s))]
        command = [
            sys.executable,
            "-m",
            "faults.entry",
            *options,
            "--",
            "tests.support.servers.lone_loop",
            talk,
        ]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(lease_s), *["--renewed"] * (lease_s == LEASE_S)],
                cwd=ROOT,
                env=installation.variables(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    async def begun(self) -> None:
        """Wait until it plays. Raise RuntimeError if it ends before."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), WAIT_S)
        if line.strip() != PLAYING:
            raise RuntimeError(f"The loop did not begin to play: see {self._log}.")

    def say(self, text: str) -> None:
        """Let it say this."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        """Stop it where it is."""
        os.kill(self._process.pid, SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def end_all(loops: Iterable[LoneLoop]) -> None:
    """End the loops of a drill."""
    for loop in loops:
        loop.kill()


async def asked(installation: Installation, name: str) -> str:
    """Create a conversation in which the agent is asked for something; return its id."""
    talk = f"{name}-{uuid4().hex[:8]}"
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        url = f"http://127.0.0.1:{installation.client_ports[0]}/api/native/conversations"
        (await client.post(url, json={"id": talk, "title": "It is chosen"})).raise_for_status()
        message = {"type": "message", "id": str(uuid4()), "text": "Hello"}
        (await client.post(f"{url}/{talk}/events", json=message)).raise_for_status()
    return talk


def epoch(installation: Installation, talk: str) -> int:
    """Return how many loops have claimed the conversation."""
    [(found,)] = installation.ask(_EPOCH, talk)
    return int(found)


def has_said(installation: Installation, talk: str, text: str) -> bool:
    """Say whether this is in the log."""
    return any(row.text == text for row in installation.store(talk, talk).events)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition. Raise TimeoutError after WAIT_S."""
    async with asyncio.timeout(WAIT_S):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(LOOK_S)


def _clock(installation: Installation, off_by_s: float) -> Path:
    """Return the clock of a host of its own."""
    clock = Clock(installation.place / f"clock-{uuid4().hex[:8]}")
    clock.offset_s = off_by_s
    return clock.path
