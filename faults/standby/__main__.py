"""Kill a PostgreSQL primary under load, promote its synchronous standby, and look for what is lost.

Each round starts both anew. Exit status: 0 if nothing was lost, 1 if something was, 2 if something that the
drill needs is not installed.
"""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

import httpx

from faults.instances import Missing, PostgreSQL
from faults.programs import Program
from faults.waits import START_WAIT_S
from tests.support.servers.ports import free_port

ROUNDS = 5
WRITERS = 16
LOAD_S = (1.0, 4.0)
"""The primary is killed at a moment between these, after the first append."""
REQUEST_WAIT_S = 10.0
_STORED = """
    SELECT c.public_id, e.event_id, e.seq FROM conversations_event e
    JOIN conversations_conversation c ON c.id = e.conversation_id
"""


class Acknowledged(NamedTuple):
    """An event that the server has acknowledged."""

    talk: str
    event_id: str
    seq: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the drill and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m faults.standby", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(2**32), help="when the primary is killed"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rng = random.Random(asked.seed)
    print(f"seed {asked.seed}\n")
    print("| round | acknowledged | in the promoted standby | lost |\n|---|---:|---:|---:|")
    lost = 0
    try:
        for number in range(1, asked.rounds + 1):
            with TemporaryDirectory(prefix="convserver-standby-") as place, ExitStack() as running:
                Path(place).chmod(0o755)
                acknowledged, stored = _round(Path(place), rng, running)
            missing = set(acknowledged) - stored
            lost += len(missing)
            print(f"| {number} | {len(acknowledged)} | {len(stored)} | {len(missing)} |", flush=True)
    except Missing as missing_program:
        print(f"The drill cannot run: {missing_program}")
        return 2
    return int(bool(lost))


def _round(
    place: Path, rng: random.Random, running: ExitStack
) -> tuple[list[Acknowledged], set[Acknowledged]]:
    """Return what was acknowledged until the primary was killed, and what the promoted standby has."""
    primary = _started(PostgreSQL(place / "primary"), running)
    port = free_port()
    server = Program("server", ["convserver", "serve"], _variables(primary, port, place), place)
    running.callback(server.kill)
    server.start()
    _until_ready(port)
    standby = _started(PostgreSQL(place / "standby", primary=primary), running)
    primary.require_standby()
    acknowledged = _load(port, primary, rng.uniform(*LOAD_S))
    server.kill()
    standby.promote()
    stored = {Acknowledged(str(talk), str(id), int(str(seq))) for talk, id, seq in standby.ask(_STORED)}
    _require_service(standby, place, running)
    return acknowledged, stored


def _started(postgresql: PostgreSQL, running: ExitStack) -> PostgreSQL:
    running.callback(postgresql.kill)
    postgresql.start()
    return postgresql


def _variables(postgresql: PostgreSQL, port: int, place: Path) -> dict[str, str]:
    return {
        "PORT": str(port),
        "DATABASE_URL": postgresql.url,
        "CONVSERVER_DATA_DIR": str(place / "data"),
        "SECRET_KEY": "a key of this drill alone, long enough for anybody's taste",
    }


def _load(port: int, primary: PostgreSQL, seconds: float) -> list[Acknowledged]:
    """Append from many threads, and kill the primary after so many seconds; return the acknowledgements."""
    over = threading.Event()
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(_write, port, over) for _ in range(WRITERS)]
        time.sleep(seconds)
        primary.kill()
        over.set()
        return [each for written in writing for each in written.result()]


def _write(port: int, over: threading.Event) -> list[Acknowledged]:
    talk, acknowledged = uuid4().hex, []
    url = f"http://127.0.0.1:{port}/api/native/conversations"
    with suppress(httpx.TransportError), httpx.Client(timeout=REQUEST_WAIT_S) as client:
        client.post(url, json={"id": talk})
        while not over.is_set():
            event_id = uuid4().hex
            frame = {"type": "event", "id": event_id, "event": {"id": event_id, "action": "note"}}
            answer = client.post(f"{url}/{talk}/events", json=frame)
            if answer.is_success:
                acknowledged.append(Acknowledged(talk, event_id, int(answer.json()["seq"])))
    return acknowledged


def _require_service(standby: PostgreSQL, place: Path, running: ExitStack) -> None:
    """Start a server on the promoted standby. Raise RuntimeError if it does not serve."""
    port = free_port()
    server = Program("successor", ["convserver", "serve"], _variables(standby, port, place), place)
    running.callback(server.kill)
    server.start()
    _until_ready(port)


def _until_ready(port: int) -> None:
    give_up_at = time.monotonic() + START_WAIT_S
    while time.monotonic() < give_up_at:
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/ready").is_success:
                return
        time.sleep(0.1)
    raise RuntimeError("The server does not become ready.")


if __name__ == "__main__":
    sys.exit(main())
