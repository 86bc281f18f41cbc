"""Reads that clients poll: their addresses, what they read, and the SQL that the server answers each with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

from benchmarks import server
from benchmarks.databases import Database
from benchmarks.job import ClientFailed

CONVERSATIONS, EVENTS = 25, 30
"""Of each wire, and in the one that is read."""
LIMIT = 20
WAIT_S = 60
ONE = {
    "native": "/api/native/conversations/{}",
    "V0": "/api/conversations/{}",
    "V1 app": "/api/v1/app-conversations?ids={}",
    "V1 agent": "/agent/api/conversations/{}",
}
"""By door, where one conversation is read."""
LISTS = {
    "native": f"/api/native/conversations?limit={LIMIT}",
    "V0": f"/api/conversations?limit={LIMIT}",
    "V1 app": f"/api/v1/app-conversations/search?limit={LIMIT}",
    "V1 agent": f"/agent/api/conversations/search?limit={LIMIT}",
}
"""By door, the first page of the list."""
SEARCH = f"/api/v1/events/search?conversation_id__eq={{}}&limit={LIMIT}"


def addresses(public_id: str) -> dict[str, str]:
    """Return by name of a read its address."""
    return {
        **{f"get {door}": path.format(public_id) for door, path in ONE.items()},
        "search events": SEARCH.format(public_id),
        **{f"list {door}": path for door, path in LISTS.items()},
    }


def make(running: server.Server) -> str:
    """Make the conversations, and return the id of the one that is read. Raise ClientFailed."""
    ids = [uuid4().hex for _ in range(CONVERSATIONS)]
    for public_id in ids:
        for version, name in (("V0", uuid4().hex), ("V1", public_id)):
            _post(running, "/api/native/conversations", {"id": name, "version": version, "title": "polled"})
    message = {"kind": "MessageEvent", "source": "user"}
    said = {"role": "user", "content": [{"type": "text", "text": "polled"}]}
    events = [{"id": uuid4().hex, "event": message | {"llm_message": said}} for _ in range(EVENTS)]
    path = f"/api/native/conversations/{ids[0]}/events"
    _post(running, path, {"type": "events", "events": events})
    return ids[0]


def statements(database: Database, directory: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return the SQL by address. Raise ClientFailed."""
    own = {"DATABASE_URL": database.url, "CONVSERVER_DATA_DIR": str(directory)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.measured.read_sql", *paths],
        capture_output=True,
        text=True,
        cwd=server.ROOT,
        env=os.environ | own,
        check=False,
        timeout=WAIT_S,
    )
    if done.returncode:
        raise ClientFailed(f"The SQL of reads: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _post(running: server.Server, path: str, body: Mapping[str, Any]) -> None:
    url = f"http://127.0.0.1:{running.port}{path}"
    kind = {"Content-Type": "application/json"}
    try:
        with urlopen(Request(url, json.dumps(body).encode(), kind), timeout=WAIT_S):
            pass
    except OSError as error:
        raise ClientFailed(f"{url}: {error}") from error
