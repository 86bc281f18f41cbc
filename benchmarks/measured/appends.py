"""Jobs that append to conversations, by socket and by REST, and a look into the database after them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.databases import Database
from benchmarks.job import ClientFailed, Job, Result, carry_out
from benchmarks.server import Server

DOORS = {"v0": "/api/conversations/{}/events", "native": "/api/native/conversations/{}/events"}
"""By name of the door, where a conversation's events are posted."""


def by_socket(
    database: Database,
    running: Server,
    ids: Sequence[str],
    *,
    seconds: float,
    batch: int = 1,
    follows: bool = True,
) -> Job:
    """Return the job of a socket for each of these conversations."""
    after = database.last_seqs(ids)
    more = "" if follows else "&follow=false"
    return Job(
        sort="append",
        port=running.port,
        paths=[f"/ws/conversations/{public_id}?after={after[public_id]}{more}" for public_id in ids],
        after=[after[public_id] for public_id in ids],
        batch=batch,
        follows=follows,
        seconds=seconds,
    )


def by_rest(database: Database, running: Server, ids: Sequence[str], *, door: str, seconds: float) -> Job:
    """Return the job of a client, with a connection that it keeps, for each of these conversations."""
    after = database.last_seqs(ids)
    return Job(
        sort=f"post {door}",
        port=running.port,
        paths=[DOORS[door].format(public_id) for public_id in ids],
        after=[after[public_id] for public_id in ids],
        seconds=seconds,
    )


def carry_out_on(database: Database, ids: Sequence[str], job: Job) -> Result:
    """Carry out a job on these. Raise ClientFailed also if something else was stored than was answered."""
    before = sum(database.last_seqs(ids).values())
    result = carry_out(job)
    grown = sum(database.last_seqs(ids).values()) - before
    if grown != result["events"]:
        raise ClientFailed(f"{job.sort}: {result['events']} events were answered, {grown} are stored")
    return result
