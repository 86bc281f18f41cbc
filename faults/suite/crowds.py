"""Many writers of one conversation at once, through every server: each is served, and one log comes of it.

Nothing is broken here: whoever is refused has met another writer where a lock ought to keep them apart.
"""

from __future__ import annotations

import asyncio
import random
from uuid import uuid4

import httpx

from faults.suite import stored
from faults.suite.drill import Drill, found_wrong
from faults.suite.installations import Installation
from faults.suite.rounds import IN_STORE, Result

WRITERS = 10
EVENTS_EACH = 60
WAIT_S = 120.0
REFUSED = "refused though nothing was broken"


async def run(installation: Installation, rng: random.Random) -> Result:
    """Let the writers append, each one event after the other, and judge their answers and the log."""
    talk = f"crowd-{uuid4().hex[:8]}"
    result = Result(injected=1)
    urls = [
        f"http://127.0.0.1:{port}/api/native/conversations"
        for port in rng.sample(installation.client_ports, installation.count)
    ]
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        (await client.post(urls[0], json={"id": talk, "title": "It is chosen"})).raise_for_status()
        writers = (
            _write(client, f"{urls[number % len(urls)]}/{talk}/events", result) for number in range(WRITERS)
        )
        seqs = [seq for written in await asyncio.gather(*writers) for seq in written]
    result.acknowledged = len(seqs)
    found = list(stored.faults_in(await asyncio.to_thread(installation.store, talk, talk)))
    if sorted(seqs) != list(range(len(seqs))):
        found.append(f"{talk}: the numbers that were acknowledged have gaps or repeats")
    found_wrong(result, IN_STORE, found)
    return result


async def _write(client: httpx.AsyncClient, url: str, result: Result) -> list[int]:
    """Append one writer's events; return the numbers of those that were acknowledged."""
    seqs = []
    for _ in range(EVENTS_EACH):
        key = uuid4().hex
        note = {"id": key, "action": "note", "args": {"content": "A note."}}
        answer = await client.post(url, json={"type": "event", "id": key, "event": note})
        if answer.is_success:
            seqs.append(answer.json()["seq"])
        else:
            found_wrong(result, REFUSED, [f"{answer.status_code} {answer.text[:200]}"])
    return seqs


CROWDS: Drill[Installation] = Drill(
    name="ten writers of one conversation at once", rows=("FI-08", "FI-24"), run=run
)
