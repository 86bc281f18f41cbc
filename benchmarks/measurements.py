"""What is measured in a round, in its order: each limit next to what is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from uuid import uuid4

from benchmarks import server
from benchmarks.flooding import floods
from benchmarks.job import Job, Question, Result, carry_out
from benchmarks.measured import (
    appends,
    beside,
    clusters,
    commands,
    hanging,
    importing,
    listing,
    lists,
    locked,
    moving_in,
    pages,
    purging,
    reads,
    verifying,
)
from benchmarks.workbench import LENGTH_CLIENTS, LONG, OPENED, REPLAYS, SHORT, Values, Workbench, percentile

BATCH = 50
BESIDE = 16
"""Clients that append while another one asks."""
OPENERS = 8
"""Clients that open a conversation at once while another one asks."""
AUDIENCE, SHOWN = 1_000, 200
"""V1 sockets on one conversation, and the events that each is shown."""
_JOIN = "/socket.io/?EIO=4&transport=websocket&latest_event_id=-1&conversation_id=opened-0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A piece of a round that is measured, and that can fail, by itself."""

    keys: Collection[str]
    """The names of the values that it brings."""
    measure: Callable[[Workbench], Values]
    prepare: Callable[[Workbench], None] | None = None
    """What it needs once an engine, before the rounds."""
    is_steady: bool = False
    """It comes to the same in every round, and is costly: it is measured in the first one only."""
    only_on: str | None = None
    """The one engine that can do it."""


def wanted(keys: Collection[str], engine: str) -> list[Measurement]:
    """Return the measurements that bring any of these values on this engine, in the order of a round."""
    possible = (each for each in MEASUREMENTS if each.only_on in (None, engine))
    return [measurement for measurement in possible if not set(keys).isdisjoint(measurement.keys)]


def _replay(events: int, bench: Workbench) -> Values:
    """Replay to one reader, memory against that of a fresh server after its first small join."""

    def replay(target: server.Server, path: str, events: int) -> float:
        job = Job(sort="replay", port=target.port, paths=[path], after=[-1], events=events)
        return carry_out(job)["rate"]

    (small,) = bench.fresh(f"small-{events}", conversations=1)
    yield f"bare replay/{events}", replay(bench.bare(), f"/send/{events}", events)
    with server.convserver(bench.database.url, bench.directory) as running:
        replay(running, f"/ws/conversations/{small}?after=-1", SHORT)
        memory = server.Memory(running.pid)
        before_mb = memory.now_mb()
        with memory.watched():
            rate = replay(running, f"/ws/conversations/replay-{events}-0?after=-1", events)
        yield f"replay/{events}", rate
        yield f"replay memory MB/{events}", memory.peak_mb - before_mb


def _append(key: str, clients: int, bench: Workbench, *, batch: int = 1, follows: bool = True) -> Values:
    ids = bench.fresh(key, conversations=clients)
    return bench.append(key, ids, batch=batch, follows=follows)


def _lengths(name: str, batch: int, bench: Workbench) -> Values:
    """Compare short and long conversations, in turns the one and the other first."""
    for events in (SHORT, LONG) if bench.number % 2 else (LONG, SHORT):
        key = f"{name} at {events}"
        ids = bench.long if events == LONG else bench.fresh(key, conversations=LENGTH_CLIENTS)
        yield from bench.append(key, ids, batch=batch)


def _asked(beside: str, bench: Workbench) -> Values:
    """Ask for one conversation while it and others are appended to, or opened, or nothing goes on."""
    ids = bench.fresh(f"asked {beside}", conversations=BESIDE)
    running = bench.convserver()
    question = Question(running.port, f"/api/conversations/{ids[0]}", f'"conversation_id":"{ids[0]}"')
    key = f"asked {beside}"
    match beside:
        case "idle":
            yield from bench.ask(key, question, Job(sort="ask"))
        case "beside openings":
            opening = Job(sort="open", port=running.port, paths=[_JOIN] * OPENERS, events=OPENED)
            yield from bench.ask(key, question, opening)
        case "beside sockets":
            job = appends.by_socket(bench.database, running, ids, seconds=0.0)
            yield from bench.ask(key, question, job, appended_to=ids)
        case _:
            job = appends.by_rest(bench.database, running, ids, door="v0", seconds=0.0)
            yield from bench.ask(key, question, job, appended_to=ids)


def _heard(bench: Workbench, *, bare: bool = False, every_s: float = 0.0, mutes: int = 0) -> Result:
    """Let many follow a new conversation that one appends to."""
    public_id = uuid4().hex
    speaker = "/say" if bare else f"/ws/conversations/{public_id}?version=V1&follow=false"
    listener = "/hear" if bare else f"/sockets/events/{public_id}"
    running = bench.bare() if bare else bench.convserver()
    paths = [speaker, *[listener] * AUDIENCE]
    return carry_out(
        Job(sort="audience", port=running.port, paths=paths, events=SHOWN, every_s=every_s, mutes=mutes)
    )


def _audience(bench: Workbench) -> Values:
    """Append to a conversation that many follow, as fast as that goes."""
    yield "bare audience", _heard(bench, bare=True)["rate"]
    result = _heard(bench)
    yield "audience", result["rate"]
    yield "audience, p99 ms", percentile(result["latencies_ms"][0], 99)


def _paced_audience(bench: Workbench) -> Values:
    """Append at half the rate that the bare sockets reach, with and without one that never reads."""
    every_s = 2 * AUDIENCE / _heard(bench, bare=True)["rate"]
    for key, bare, mutes in (
        ("bare paced audience", True, 0),
        ("paced audience", False, 0),
        ("paced audience, one mute", False, 1),
    ):
        result = _heard(bench, bare=bare, every_s=every_s, mutes=mutes)
        yield f"{key}, p99 ms", percentile(result["latencies_ms"][0], 99)


def _hanging(bench: Workbench) -> Values:
    bench.stop_servers()
    for key, latencies_ms in hanging.latencies_ms(bench.database, bench.directory, bench.plan.asks).items():
        yield f"{key}, median ms", median(latencies_ms)


def _importing(bench: Workbench) -> Values:
    bench.stop_servers()
    for key, latencies_ms in importing.latencies_ms(bench.database, bench.directory).items():
        yield f"{key}, median ms", median(latencies_ms)


def _purging(bench: Workbench) -> Values:
    for key, latencies_ms in purging.latencies_ms(bench.database, bench.directory).items():
        yield f"append {key}, median ms", median(latencies_ms)


def _moving_in(bench: Workbench) -> Values:
    rate, limit, grown_mb = moving_in.measured(bench.database, bench.directory)
    yield "moving in", rate
    yield "bulk insert", limit
    yield "moving in, MB", grown_mb


def _verifying(bench: Workbench) -> Values:
    took = verifying.measured(bench.database.engine, bench.directory)
    yield "verify, s", took.verify_s
    yield "scan, s", took.scan_s
    yield "verify, MB", took.peak_mb


def _locked(bench: Workbench) -> Values:
    free, taken = bench.fresh("locked", conversations=2)
    answers_ms = locked.latencies_ms(bench.database, bench.directory, free, taken, bench.plan.locked_s)
    for key, latencies_ms in answers_ms.items():
        yield f"{key}, p95 ms", percentile(latencies_ms, 95)
        yield f"{key}, longest ms", max(latencies_ms)


def _prepare_floods(bench: Workbench) -> None:
    bench.floods.prepare()


def _flooded(name: str, bench: Workbench) -> Values:
    found = bench.floods.latencies_ms(name, bench.accounts(), bench.plan.idle_s, bench.plan.flood_s)
    for key, latencies_ms in found.items():
        yield key, percentile(latencies_ms, 95)


def _clusters(bench: Workbench) -> Values:
    ids = bench.fresh("clusters", conversations=clusters.SOCKETS)
    yield from clusters.measured(bench.database, bench.directory, ids, bench.plan.append_s)


def _pages(bench: Workbench) -> Values:
    for key, cost_ms in pages.costs_ms().items():
        yield f"shown {key}, ms", cost_ms


def _beside(measure: Callable[..., Values], bench: Workbench) -> Values:
    assert bench.shared is not None
    yield from measure(bench.shared, bench.convserver(), bench.agent_server(), bench.plan.asks)


def _lists(bench: Workbench) -> Values:
    for key, latencies_ms in bench.lists.run(bench.plan.asks).items():
        yield f"{key} ms", median(latencies_ms)


def _listing(bench: Workbench) -> Values:
    took = listing.measured(bench.database, bench.directory)
    yield "list files, ms", took.list_ms
    yield "scan files, ms", took.scan_ms


def _commands(bench: Workbench) -> Values:
    bench.stop_servers()
    took = commands.measured(bench.database, bench.directory)
    yield "first output, ms", took.output_ms
    yield "first output by a pipe, ms", took.pipe_ms
    yield "sandbox start, ms", took.start_ms
    yield "bash start, ms", took.bare_start_ms


def _limit(key: str, clients: int) -> Measurement:
    return Measurement(keys=[key], measure=lambda bench: bench.limit(key, clients=clients))


def _appended(key: str, clients: int, *, batch: int = 1, follows: bool = True) -> Measurement:
    return Measurement(keys=[key], measure=partial(_append, key, clients, batch=batch, follows=follows))


def _posted(clients: int) -> Sequence[Measurement]:
    """Append by REST, at one door and at the other."""

    def at(door: str, key: str) -> Measurement:
        return Measurement(keys=[key], measure=lambda bench: bench.post(key, door=door, clients=clients))

    return [at(door, f"post {door}/{clients}") for door in appends.DOORS]


def _to_bare(key: str, sort: str, clients: int) -> Measurement:
    return Measurement(keys=[key], measure=lambda bench: bench.to_bare(key, sort, clients=clients))


def _to_consumer(key: str, path: str, clients: int) -> Measurement:
    return Measurement(keys=[key], measure=lambda bench: bench.to_consumer(key, path, clients=clients))


def _read(name: str, clients: int) -> Measurement:
    return Measurement(
        keys=[f"{name}/{clients}", f"bare {name}/{clients}"],
        measure=lambda bench: bench.get(name, clients=clients),
        prepare=Workbench.make_reads,
    )


def _read_beside(name: str) -> Measurement:
    def measure(bench: Workbench) -> Values:
        yield from bench.get_beside(name, bench.fresh(f"beside {name}", conversations=BESIDE))

    return Measurement(
        keys=[f"{each} beside sockets, p99 ms" for each in (name, f"bare {name}")],
        measure=measure,
        prepare=Workbench.make_reads,
    )


MEASUREMENTS: Sequence[Measurement] = [
    *(
        Measurement(
            keys=[f"bare replay/{events}", f"replay/{events}", f"replay memory MB/{events}"],
            measure=partial(_replay, events),
            prepare=Workbench.fill_replays,
        )
        for events in REPLAYS
    ),
    _limit("limit/1", 1),
    _appended("append/1", 1),
    *_posted(1),
    _limit("limit/16", 16),
    _appended("append/16", 16),
    *_posted(16),
    _appended("append/64", 64),
    _to_bare("echo/64", "echo", 64),
    _to_consumer("plain consumer/64", "/plain", 64),
    _to_consumer("door consumer/64", "/door", 64),
    _appended("append write-only/64", 64, follows=False),
    *_posted(64),
    _to_bare("post bare/64", "post bare", 64),
    _limit("limit beside batches", 16),
    _appended("batch/1", 1, batch=BATCH),
    _appended("batch/4", 4, batch=BATCH),
    _appended("batch write-only/4", 4, batch=BATCH, follows=False),
    *(
        Measurement(
            keys=[f"{name} at {SHORT}", f"{name} at {LONG}"],
            measure=partial(_lengths, name, batch),
            prepare=Workbench.fill_long,
        )
        for name, batch in (("append", 1), ("batch", BATCH))
    ),
    *(
        Measurement(
            keys=[f"asked {beside}, {name} ms" for name in ("median", "p95", "p99")],
            measure=partial(_asked, beside),
            prepare=Workbench.fill_opened if beside == "beside openings" else None,
        )
        for beside in ("idle", "beside openings", "beside sockets", "beside REST")
    ),
    *(_read(name, clients) for name in reads.addresses("") for clients in (1, 16)),
    *(_read_beside(f"get {door}") for door in reads.ONE),
    Measurement(keys=["bare audience", "audience", "audience, p99 ms"], measure=_audience),
    Measurement(
        keys=[
            "bare paced audience, p99 ms",
            "paced audience, p99 ms",
            "paced audience, one mute, p99 ms",
        ],
        measure=_paced_audience,
    ),
    Measurement(
        keys=[
            f"{name} {when}, median ms"
            for name in hanging.QUESTIONS
            for when in ("idle", "beside a hanging step")
        ],
        measure=_hanging,
    ),
    Measurement(
        keys=[
            f"{name} {when}, median ms"
            for name in importing.QUESTIONS
            for when in (importing.IDLE, importing.BESIDE)
        ],
        measure=_importing,
    ),
    Measurement(
        keys=[f"append {when}, median ms" for when in (purging.IDLE, purging.BESIDE)],
        measure=_purging,
    ),
    Measurement(
        keys=[
            *(f"{name} {when}, p95 ms" for name in locked.QUESTIONS for when in (locked.IDLE, locked.BESIDE)),
            f"{locked.WAITS}, longest ms",
        ],
        measure=_locked,
        is_steady=True,
    ),
    *(
        Measurement(
            keys=[
                floods.key(name, question, when)
                for question in floods.QUESTIONS
                for when in (floods.IDLE, floods.BESIDE)
            ],
            measure=partial(_flooded, name),
            prepare=_prepare_floods,
            is_steady=True,
        )
        for name in floods.FLOODS
    ),
    Measurement(
        keys=[key for cluster in clusters.CLUSTERS for key in cluster.keys],
        measure=_clusters,
        only_on="PostgreSQL",
        is_steady=True,
    ),
    *(
        Measurement(
            keys=[key, beside.theirs(key)],
            measure=partial(_beside, measure),
            prepare=Workbench.make_shared,
        )
        for key, measure in ((beside.PAGE_KEY, beside.pages), (beside.JOIN_KEY, beside.joins))
    ),
    Measurement(keys=["moving in", "bulk insert", "moving in, MB"], measure=_moving_in),
    Measurement(keys=["verify, s", "scan, s", "verify, MB"], measure=_verifying, is_steady=True),
    Measurement(keys=["list files, ms", "scan files, ms"], measure=_listing, is_steady=True),
    Measurement(
        keys=["first output, ms", "first output by a pipe, ms", "sandbox start, ms", "bash start, ms"],
        measure=_commands,
    ),
    Measurement(keys=["shown page, ms", "shown costliest, ms"], measure=_pages, is_steady=True),
    Measurement(
        keys=[f"{name} at {count} ms" for name in lists.PAGES for count in (lists.FEW, lists.MANY)],
        measure=_lists,
        prepare=lambda bench: bench.lists.prepare(),
    ),
]
