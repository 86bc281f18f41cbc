"""Commands of an agent in the sandbox: their first output at a reader, and how long a start takes."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from websockets.sync.client import connect

from benchmarks import server
from benchmarks.clients import calls
from benchmarks.databases import Database
from benchmarks.job import ClientFailed
from benchmarks.server import Server
from sessions_app.sandbox.base import NoSandbox, SandboxLimits
from sessions_app.sandbox.bubblewrap import Bubblewrap
from sessions_app.sandbox.ownership import Account
from tests.support.servers.model_server import Answer, Asked, calling, completion, model_server

NATIVE = "/api/native/conversations"
COMMANDS = 20
"""Commands whose first output is awaited."""
STARTS = 40
# The time is written by the shell itself. It ends later, so that the output comes before the result.
WRITES = "sleep 0.2; echo at=$EPOCHREALTIME; sleep 0.3"


class CommandTimes(NamedTuple):
    """Medians in ms."""

    output_ms: float
    """From the write of a command's first output to its frame at a reader."""
    pipe_ms: float
    """From such a write to its reader at the other end of a pipe."""
    start_ms: float
    """A sandbox with a shell that does nothing, from start to end."""
    bare_start_ms: float
    """The same shell without a sandbox."""


def measured(database: Database, directory: Path) -> CommandTimes:
    """Return how long both take, with and without the server. Raise ClientFailed without bubblewrap."""
    sandbox = Bubblewrap(SandboxLimits(2_000, 512, 1_000), _account())
    try:
        sandbox.look()
    except NoSandbox as error:
        raise ClientFailed(str(error)) from error
    with model_server(_commands) as (base_url, _):
        own = {"CONVSERVER_SANDBOX": "bubblewrap", "CONVSERVER_WORKSPACES": str(directory / "workspaces")}
        with server.convserver(database.url, directory, **own) as running:
            model = {"llm_model": "openai/gpt-x", "llm_base_url": base_url, "llm_api_key": "none"}
            calls.post(running, "/api/settings", model)
            outputs = list(_outputs_ms(running))
    return CommandTimes(
        median(outputs),
        median(_piped_ms()),
        median(asyncio.run(_starts_ms(sandbox))),
        median(_bare_starts_ms()),
    )


def _commands(asked: Asked) -> Answer:
    """Ask for one command after the other, as a model does."""
    done = sum(each["role"] == "tool" for each in asked.body["messages"])
    return completion(["Done."]) if done == COMMANDS else calling(("terminal", {"command": WRITES}))


def _outputs_ms(running: Server) -> Iterator[float]:
    """Follow a conversation whose agent runs the commands; yield when each first output is there."""
    conversation = json.loads(calls.post(running, NATIVE, {}))["id"]
    address = f"ws://127.0.0.1:{running.port}/ws/conversations/{conversation}?after=-1"
    with connect(address, max_size=None) as socket:
        calls.post(running, f"{NATIVE}/{conversation}/events", {"type": "message", "text": "Go."})
        known: set[str] = set()
        while len(known) < COMMANDS:
            frame = json.loads(socket.recv(timeout=60))
            now = time.time()
            written = re.search(r"at=([0-9.]+)", frame["text"]) if frame["type"] == "progress" else None
            if written and frame["call"] not in known:
                known.add(frame["call"])
                yield 1000 * (now - float(written[1]))


def _piped_ms() -> Iterator[float]:
    for _ in range(COMMANDS):
        with subprocess.Popen(["bash", "-c", WRITES], stdout=subprocess.PIPE, text=True) as shell:
            assert shell.stdout is not None
            line = shell.stdout.readline()
            yield 1000 * (time.time() - float(line.removeprefix("at=")))


async def _starts_ms(sandbox: Bubblewrap) -> list[float]:
    found = []
    with TemporaryDirectory() as directory:
        if sandbox.account is not None:
            os.chown(directory, *sandbox.account)
        for _ in range(STARTS):
            began = time.perf_counter()
            program = sandbox.start(
                ["bash", "-c", "true"],
                Path(directory),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            await program.wait()
            found.append(1000 * (time.perf_counter() - began))
    return found


def _bare_starts_ms() -> Iterator[float]:
    for _ in range(STARTS):
        began = time.perf_counter()
        subprocess.run(["bash", "-c", "true"], check=True)
        yield 1000 * (time.perf_counter() - began)


def _account() -> Account | None:
    """Return who runs commands for a server that root has started."""
    if os.geteuid() != 0:
        return None
    found = pwd.getpwnam("nobody")
    return Account(found.pw_uid, found.pw_gid)
