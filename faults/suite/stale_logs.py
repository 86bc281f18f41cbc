"""An older copy of SQLite's file in place of it, while the log beside it stays: nobody is served a mixture.

SQLite puts the pages of a log into whatever file stands beside it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from uuid import uuid4

import httpx

from faults.suite import stored
from faults.suite.drill import Drill, found_wrong
from faults.suite.installations import OnSQLite
from faults.suite.on_sqlite import copied
from faults.suite.rounds import IN_STORE, Result

AGE_S = 15.0
"""So much later than the copy the log begins anew, and so much later the server is killed."""
PAUSE_S = 0.25
"""Between two events."""
FILLER = "x" * 2_000
WAIT_S = 60.0
ANSWER_WAIT_S = 300.0
LOOK_S = 0.1
LOST = "acknowledged and lost"


async def run(installation: OnSQLite, rng: random.Random) -> Result:
    """Start the server on such files, look at what it makes of them, and put the right ones back."""
    talk = f"stale-{uuid4().hex[:8]}"
    server, file = installation.servers[0], installation.file
    older, kept = installation.data / "older", installation.data / "kept"
    keys = await _recorded(installation, talk, 1.0)
    await asyncio.to_thread(copied, file, older)
    keys += await _recorded(installation, talk, AGE_S)
    await asyncio.to_thread(_checkpoint, installation)
    keys += await _recorded(installation, talk, AGE_S)
    server.kill()
    result = Result(injected=1, acknowledged=len(keys))
    kept.mkdir()
    files = installation.files()
    for each in files:
        shutil.copy2(each, kept)
    try:
        older.replace(file)  # as a person does who forgets the files beside it
        server.launch()
        is_served = await _is_served(installation, talk)
        server.kill()
        if is_served:
            found_wrong(result, IN_STORE, await asyncio.to_thread(_mixed, installation, talk))
    finally:
        for each in installation.files():
            each.unlink()
        for each in files:
            (kept / each.name).rename(each)
        kept.rmdir()
        await server.start()
    there = {row.event_id for row in installation.store(talk, talk).events}
    found_wrong(result, LOST, [f"{talk}: {key} is not there" for key in keys if key not in there])
    return result


async def _recorded(installation: OnSQLite, talk: str, for_s: float) -> list[str]:
    """Append events for so long; return the ids of those, all of which are acknowledged."""
    url = f"http://127.0.0.1:{installation.client_ports[0]}/api/native/conversations"
    keys: list[str] = []
    over_at = time.monotonic() + for_s
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        await client.post(url, json={"id": talk, "title": "It is chosen"})  # 409 if it is there
        while not keys or time.monotonic() < over_at:
            keys.append(key := uuid4().hex)
            note = {"id": key, "action": "note", "args": {"content": FILLER}}
            body = {"type": "event", "id": key, "event": note}
            (await client.post(f"{url}/{talk}/events", json=body)).raise_for_status()
            await asyncio.sleep(PAUSE_S)
    return keys


def _checkpoint(installation: OnSQLite) -> None:
    """Let the log be written into the file, and begin anew. Raise RuntimeError if it never is."""
    with installation.connected() as connection:
        (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise RuntimeError("The log could not be written into the file.")


async def _is_served(installation: OnSQLite, talk: str) -> bool:
    """Return whether the server shows or stores anything: not if it ends, or says that it cannot."""
    server, until = installation.servers[0], asyncio.get_running_loop().time() + ANSWER_WAIT_S
    url = f"http://127.0.0.1:{server.port}/api/native/conversations"
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        while not server.has_ended and asyncio.get_running_loop().time() < until:
            with suppress(httpx.TransportError):
                shown = await client.get(f"{url}/{talk}/events")
                stored_now = await client.post(url, json={"id": f"{talk}-more", "title": "It is chosen"})
                return shown.is_success or stored_now.is_success
            await asyncio.sleep(LOOK_S)
    return False


def _mixed(installation: OnSQLite, talk: str) -> list[str]:
    """Return what is wrong with the files that were served."""
    try:
        with closing(sqlite3.connect(installation.file)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found == "ok":
            return list(stored.faults_in(installation.store(talk, talk)))
    except sqlite3.DatabaseError as error:
        found = error
    return [f"{talk} or more was served from a file that is damaged: {found}"]


STALE_LOG: Drill[OnSQLite] = Drill(
    name="file replaced by an older copy, whose log stays", rows=("FI-41",), run=run
)
