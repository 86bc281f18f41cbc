"""A loop that is stopped past its lease, replaced by another one, and wakes up: it must write nothing."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from signal import SIGCONT, SIGSTOP
from uuid import uuid4

import httpx

from faults.programs import ROOT
from faults.suite import stored
from faults.suite.installations import OnPostgreSQL
from faults.suite.rounds import Result

LEASE_S = 0.5
WAIT_S = 60.0
LOOK_S = 0.05
TOO_LATE = "too late"
_EPOCH = """
    SELECT c.loop_epoch FROM conversations_conversation c WHERE c.public_id = {0}
"""
NAME = "loop stopped past its lease, replaced, and continued"


async def run(installation: OnPostgreSQL, rng: random.Random) -> Result:
    """Let a zombie try to write once; the installation's servers run no loops themselves."""
    talk = f"zombie-{uuid4().hex[:8]}"
    result = Result(injected=1)
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        url = f"http://127.0.0.1:{installation.client_ports[0]}/api/native/conversations"
        (await client.post(url, json={"id": talk, "title": "It is chosen"})).raise_for_status()
        message = {"type": "message", "id": str(uuid4()), "text": "Hello"}
        (await client.post(f"{url}/{talk}/events", json=message)).raise_for_status()
    result.acknowledged = 1
    old = await _loop(installation, talk, LEASE_S)
    new = None
    try:
        await _said(old, "playing")
        old.send_signal(SIGSTOP)
        await asyncio.sleep(2 * LEASE_S)
        new = await _loop(installation, talk, WAIT_S)
        await _until(lambda: _epoch(installation, talk) > 1)
        await _until(
            lambda: len(installation.store(talk, talk).events) > 1
        )  # what the first one left is ended
        old.send_signal(SIGCONT)
        assert old.stdin is not None
        old.stdin.write(f"{TOO_LATE}\n")
        old.stdin.flush()
        await _until(lambda: old.poll() is not None or _has_written(installation, talk))
    finally:
        for process in (old, new):
            if process is not None:
                process.kill()
                process.wait()
    found = list(stored.faults_in(installation.store(talk, talk)))
    if _has_written(installation, talk):
        found.append(f"{talk}: a loop that was replaced has written")
    for sentence in found:
        result.broken["wrong in the store"] += 1
        result.sentences.append(sentence)
    return result


async def _loop(installation: OnPostgreSQL, talk: str, lease_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "faults.entry", *installation.options]
    command += ["--", "tests.lone_loop", talk, str(lease_s)]
    with (installation.place / "loops.log").open("a") as log:
        return await asyncio.to_thread(
            lambda: subprocess.Popen(
                command,
                cwd=ROOT,
                env=installation.variables(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        )


async def _said(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), WAIT_S)
    if line.strip() != word:
        raise RuntimeError("The loop did not begin to play.")


def _epoch(installation: OnPostgreSQL, talk: str) -> int:
    [(epoch,)] = installation.ask(_EPOCH, talk)
    return int(str(epoch))


def _has_written(installation: OnPostgreSQL, talk: str) -> bool:
    return any(row.text == TOO_LATE for row in installation.store(talk, talk).events)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(LOOK_S)
