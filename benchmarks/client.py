"""The clients of one measurement, in a process of their own: job by stdin, result by stdout.

What was received is checked when the clock has stopped: each ack in its place, each event once and in order.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import uvloop

from benchmarks.clients.audience import Listener, Mute, Speaker
from benchmarks.clients.connections import Connection, Sender
from benchmarks.clients.conversing import Talker
from benchmarks.clients.joins import Joining
from benchmarks.clients.openings import Opening
from benchmarks.clients.rest import Asker, Getter, Poster, Renamer
from benchmarks.clients.sockets import Appender, Replay
from benchmarks.job import Job, Result

READY_WAIT_S = 30.0
REST_WAIT_S = 15.0
REPLAY_WAIT_S = 120.0
QUESTIONS_WAIT_S = 120.0
AUDIENCE_WAIT_S = 60.0
WARM_UP_S = 0.3
WARM_UP_QUESTIONS = 10
WARM_UP_JOINS = 3
LAST_ANSWER_WAIT_S = 5.0


async def _replay(job: Job) -> Result:
    """Let one client read it all: the rate is from the handshake to `replay_complete`."""
    client = Replay(job)
    start = time.perf_counter()
    await _connect(client, job.port)
    await _unless(client.failure, client.complete.wait(), REPLAY_WAIT_S)
    rate = job.events / (time.perf_counter() - start)
    client.check()
    client.failure.cancel()
    return {"rate": rate, "events": job.events, "latencies_ms": []}


async def _appends(job: Job) -> Result:
    """Let the clients append for a while; where there are questions, until these are answered."""
    senders = [_sender(job, place) for place in range(len(job.paths))]
    askers = [Asker(question) for question in job.questions]
    for place, sender in enumerate(senders):
        await _connect(sender, job.port_at(place))
    for asker, question in zip(askers, job.questions, strict=True):
        await _connect(asker, question.port)
    failed = asyncio.gather(*(client.failure for client in (*senders, *askers)))
    await _unless(failed, _all(sender.ready for sender in senders), READY_WAIT_S)
    start = time.perf_counter() + (0.0 if askers else WARM_UP_S)
    end = inf if askers else start + job.seconds
    for sender in senders:
        sender.begin(until=end)
    if askers:
        await _unless(failed, _asked(askers, job.times, every_s=job.every_s), QUESTIONS_WAIT_S)
        end = time.perf_counter()
        for sender in senders:
            sender.end()
    wait_s = max(end - time.perf_counter(), 0.0) + REST_WAIT_S
    await _unless(failed, _all(sender.complete for sender in senders), wait_s)
    for client in (*senders, *askers):
        client.check()
    failed.cancel()
    times = [moment for sender in senders for moment in sender.answered_at]
    if job.sort == "talk":  # answers take long beside the time that they are counted in
        end = max(times)
    return {
        "rate": sum(start <= moment < end for moment in times) * job.batch / (end - start),
        "events": len(times) * job.batch,
        "latencies_ms": [asker.latencies_ms[WARM_UP_QUESTIONS:] for asker in askers] or _talked(senders),
    }


def _talked(senders: Iterable[Sender]) -> list[list[float]]:
    """Return, as the one question that talkers have, what they all waited for the first pieces of answers."""
    talkers = [sender for sender in senders if isinstance(sender, Talker)]
    return [[each_ms for talker in talkers for each_ms in talker.latencies_ms]] if talkers else []


async def _asks_for(job: Job) -> Result:
    """Let each question be asked in its own turns for a while, whatever becomes of the others."""
    askers = [Asker(question) for question in job.questions]
    for asker, question in zip(askers, job.questions, strict=True):
        await _connect(asker, question.port)
    failed = asyncio.gather(*(asker.failure for asker in askers))
    end = time.perf_counter() + job.seconds
    asking = [asker.ask_until(end, every_s=job.every_s, patience_s=LAST_ANSWER_WAIT_S) for asker in askers]
    await _unless(failed, _together(asking), job.seconds + 2 * LAST_ANSWER_WAIT_S)
    for asker in askers:
        asker.check()
    failed.cancel()
    return {"rate": 0.0, "events": 0, "latencies_ms": [asker.latencies_ms for asker in askers]}


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*works)


async def _openings(job: Job) -> Result:
    """Let the clients open what they open, all at once and again, until the questions are answered."""
    askers = [Asker(question) for question in job.questions]
    for asker, question in zip(askers, job.questions, strict=True):
        await _connect(asker, question.port)
    failed = asyncio.gather(*(asker.failure for asker in askers))
    asking = asyncio.create_task(_asked(askers, job.times))
    start, opened = time.perf_counter(), 0
    while not asking.done():
        opened += await _opened_together(job)
    end = time.perf_counter()
    await _unless(failed, _ended(asking), QUESTIONS_WAIT_S)
    for asker in askers:
        asker.check()
    failed.cancel()
    return {
        "rate": opened * job.events / (end - start),
        "events": opened * job.events,
        "latencies_ms": [asker.latencies_ms[WARM_UP_QUESTIONS:] for asker in askers],
    }


async def _opened_together(job: Job) -> int:
    """Open everything at once, and return how many did when each has all."""
    readers = [Opening(job, place) for place in range(len(job.paths))]
    await asyncio.gather(*(_connect(reader, job.port) for reader in readers))
    failed = asyncio.gather(*(reader.failure for reader in readers))
    await _unless(failed, _all(reader.complete for reader in readers), REPLAY_WAIT_S)
    for reader in readers:
        reader.check()
        reader.leave()
    with suppress(asyncio.CancelledError):
        await failed
    return len(readers)


async def _joins(job: Job) -> Result:
    """Open the sockets in turns, each until all events are there: what slows one down slows them all."""
    latencies_ms: list[list[float]] = [[] for _ in job.questions]
    for _ in range(WARM_UP_JOINS + job.times):
        for question, own_ms in zip(job.questions, latencies_ms, strict=True):
            joining = Joining(job, question)
            began = time.perf_counter()
            await _connect(joining, question.port)
            await _unless(joining.failure, joining.complete.wait(), REPLAY_WAIT_S)
            own_ms.append((time.perf_counter() - began) * 1000)
            joining.check()
            joining.leave()
    return {
        "rate": 0.0,
        "events": job.events,
        "latencies_ms": [each[WARM_UP_JOINS:] for each in latencies_ms],
    }


async def _renames(job: Job) -> Result:
    """Let the clients wait for what is locked until the questions are answered; their waits come last."""
    renamers = [Renamer(job, place) for place in range(len(job.paths))]
    askers = [Asker(question) for question in job.questions]
    for renamer in renamers:
        await _connect(renamer, job.port)
    for asker, question in zip(askers, job.questions, strict=True):
        await _connect(asker, question.port)
    failed = asyncio.gather(*(client.failure for client in (*renamers, *askers)))
    for renamer in renamers:
        renamer.begin()
    await _unless(failed, _asked(askers, job.times, every_s=job.every_s), QUESTIONS_WAIT_S)
    for client in (*renamers, *askers):
        client.check()
    failed.cancel()
    answers_ms = [asker.latencies_ms[WARM_UP_QUESTIONS:] for asker in askers]
    waits_ms = [each_ms for renamer in renamers for each_ms in renamer.waits_ms]
    return {"rate": 0.0, "events": 0, "latencies_ms": [*answers_ms, waits_ms]}


async def _audience(job: Job) -> Result:
    """Let one client append and all others follow: deliveries a second, and how long each took."""
    place, *places = job.paths
    speaker = Speaker(job, place)
    await _connect(speaker, job.port)
    await _unless(speaker.failure, speaker.ready.wait(), READY_WAIT_S)
    listeners = [Listener(job, path) for path in places]
    mutes = [Mute(job, places[0]) for _ in range(job.mutes)]
    for listener in (*listeners, *mutes):
        await _connect(listener, job.port)
    failed = asyncio.gather(*(client.failure for client in (speaker, *listeners)))
    await _unless(failed, _all(listener.ready for listener in listeners), AUDIENCE_WAIT_S)
    speaker.say()
    await _unless(failed, _all(listener.complete for listener in listeners), AUDIENCE_WAIT_S)
    for listener in listeners:
        listener.check_against(speaker.sent)
    failed.cancel()
    latencies_ms = [
        (shown_at - sent_at) * 1000
        for listener in listeners
        for shown_at, sent_at in zip(listener.shown_at, speaker.sent_at, strict=True)
    ]
    seconds = max(listener.shown_at[-1] for listener in listeners) - speaker.sent_at[0]
    return {"rate": len(latencies_ms) / seconds, "events": job.events, "latencies_ms": [latencies_ms]}


async def _ended(task: asyncio.Task[None]) -> None:
    await task


def _sender(job: Job, place: int) -> Sender:
    if job.sort == "talk":
        return Talker(job, place)
    if job.sort == "get":
        return Getter(job, place)
    return Poster(job, place) if job.sort.startswith("post ") else Appender(job, place)


async def _connect(client: Connection, port: int) -> None:
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)


async def _asked(askers: Sequence[Asker], times: int, *, every_s: float = 0.0) -> None:
    """Ask the questions in turns, so that what slows one down slows them all."""
    for _ in range(WARM_UP_QUESTIONS + times):
        for asker in askers:
            await asker.ask()
        await asyncio.sleep(every_s)


async def _all(facts: Iterable[asyncio.Event]) -> None:
    for fact in facts:
        await fact.wait()


async def _unless(failed: asyncio.Future[Any], work: Coroutine[Any, Any, Any], wait_s: float) -> None:
    """Wait for `work`. Raise what failed first, or TimeoutError."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({failed, task}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        failed.result()
    if not task.done():
        task.cancel()
        raise TimeoutError(f"The server did not answer everything within {wait_s:.0f} s.")
    task.result()


def main() -> None:
    """Do the job of stdin."""
    job = Job.read(sys.stdin.read())
    works = {
        "replay": _replay,
        "open": _openings,
        "audience": _audience,
        "rename": _renames,
        "ask for": _asks_for,
        "join": _joins,
    }
    result = uvloop.run(works.get(job.sort, _appends)(job))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
