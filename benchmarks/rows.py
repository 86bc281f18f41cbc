"""The lines of the report: a measurement, what it is compared with, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.flooding import floods
from benchmarks.measured import beside, clusters, importing, locked, purging, reads
from benchmarks.measured.appends import DOORS

MB, MS, S = "MB", "ms", "s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One comparison; keys are those of the samples."""

    title: str
    key: str
    limit: str | None = None
    limit_title: str = ""
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    spare: float = 0.0
    """What the value may have above that ratio, in its unit: beside a small limit a ratio says little."""
    at_least: float | None = None
    below: float | None = None
    unit: str = "events/s"
    on_sqlite: bool = False
    """The target holds for SQLite as well."""
    only_on: str | None = None
    """The one engine that it is about."""
    is_quick: bool = True
    """It is among the rows of a quick run, whose minutes do not suffice for all."""
    needs_agent_server: bool = False
    """It is left out where the agent server of OpenHands cannot be installed."""

    @property
    def keys(self) -> list[str]:
        """The measurements that it compares."""
        return [self.key, self.limit] if self.limit else [self.key]

    def is_called(self, names: Sequence[str]) -> bool:
        """Say whether any of these stands in its title, in any case; no name means every row."""
        return not names or any(name.casefold() in self.title.casefold() for name in names)


ROWS = [
    Row(title="append, 1 socket", key="append/1", limit="limit/1", limit_title="engine, 1 client"),
    Row(title="append, 16 sockets", key="append/16", limit="limit/16", limit_title="engine, 16 clients"),
    Row(
        title="append, 64 sockets",
        key="append/64",
        limit="limit/16",
        limit_title="engine, 16 clients",
        ratio_at_least=0.25,
    ),
    Row(title="append, 64 sockets", key="append/64", limit="echo/64", limit_title="bare echo, 64 sockets"),
    Row(
        title="echo by a plain consumer of Channels, 64 sockets",
        key="plain consumer/64",
        limit="door consumer/64",
        limit_title="by the consumer of the doors",
        is_quick=False,
    ),
    Row(
        title="echo by the consumer of the doors, 64 sockets",
        key="door consumer/64",
        limit="echo/64",
        limit_title="bare echo, 64 sockets",
        is_quick=False,
    ),
    Row(
        title="append, 64 sockets, write-only",
        key="append write-only/64",
        limit="limit/16",
        limit_title="engine, 16 clients",
    ),
    *(
        Row(
            title=f"append by REST, {door}, {clients}",
            key=key,
            limit=limit,
            limit_title=limit_title,
        )
        for door in DOORS
        for clients, key, limit, limit_title in (
            ("1 client", f"post {door}/1", "limit/1", "engine, 1 client"),
            ("16 clients", f"post {door}/16", "limit/16", "engine, 16 clients"),
            ("64 clients", f"post {door}/64", "limit/16", "engine, 16 clients"),
        )
    ),
    Row(
        title="append by REST, native, 64 clients",
        key="post native/64",
        limit="post bare/64",
        limit_title="bare HTTP, 64 clients",
    ),
    Row(
        title="batches of 50, 1 socket",
        key="batch/1",
        limit="limit beside batches",
        limit_title="engine, 16 clients",
    ),
    Row(
        title="batches of 50, 4 sockets",
        key="batch/4",
        limit="limit beside batches",
        limit_title="engine, 16 clients",
        ratio_at_least=0.8,
    ),
    Row(
        title="batches of 50, 4 sockets, write-only",
        key="batch write-only/4",
        limit="limit beside batches",
        limit_title="engine, 16 clients",
    ),
    Row(
        title="append, 4 sockets, length 100,000",
        key="append at 100000",
        limit="append at 100",
        limit_title="the same at length 100",
        ratio_at_least=1 / 1.15,
    ),
    Row(
        title="batches of 50, 4 sockets, length 100,000",
        key="batch at 100000",
        limit="batch at 100",
        limit_title="the same at length 100",
        ratio_at_least=1 / 1.15,
    ),
    Row(
        title="replay of 10,000",
        key="replay/10000",
        limit="bare replay/10000",
        limit_title="bare socket, prepared frames",
        at_least=30_000,
    ),
    Row(
        title="replay of 100,000",
        key="replay/100000",
        limit="bare replay/100000",
        limit_title="bare socket, prepared frames",
        at_least=30_000,
    ),
    Row(title="memory growth, replay of 10,000", key="replay memory MB/10000", below=30, unit=MB),
    Row(title="memory growth, replay of 100,000", key="replay memory MB/100000", below=30, unit=MB),
    *(
        Row(
            title=f"{title}, 100,000 conversations",
            key=f"{key} at 100000 ms",
            limit=f"{key} at 1000 ms",
            limit_title="the same at 1,000",
            ratio_at_most=1.2,
            unit=MS,
            on_sqlite=True,
        )
        for key, title in (
            ("list", "first page"),
            ("list by repository", "first page, one repository"),
            ("native list", "first page, native"),
            ("shown list", "first page, as HTML"),
        )
    ),
    *(
        Row(
            title=f"one conversation, {beside}, {name}",
            key=f"asked {key}, {name} ms",
            limit=None if key == "idle" else f"asked idle, {name} ms",
            limit_title="" if key == "idle" else "the same, idle",
            unit=MS,
        )
        for name in ("median", "p99")
        for key, beside in (
            ("idle", "idle"),
            ("beside sockets", "16 sockets append"),
            ("beside REST", "16 REST clients append"),
        )
    ),
    Row(
        title="one conversation, 8 clients open 2,200 events, p95",
        key="asked beside openings, p95 ms",
        limit="asked idle, p95 ms",
        limit_title="the same, idle",
        ratio_at_most=3.0,
        unit=MS,
        on_sqlite=True,
    ),
    *(
        Row(
            title=f"{title}, {count}",
            key=f"{name}/{clients}",
            limit=f"bare {name}/{clients}",
            limit_title="the same SQL, bare",
            ratio_at_least=at_least,
            unit="answers/s",
            is_quick=name == "get native",
        )
        for name, title, least in (
            *((f"get {door}", f"GET one conversation, {door}", (0.30, 0.25)) for door in reads.ONE),
            ("search events", "GET V1 events/search", (None, None)),
            *((f"list {door}", f"GET the first page of a list, {door}", (0.2, 0.2)) for door in reads.LISTS),
        )
        for clients, count, at_least in ((1, "1 client", least[0]), (16, "16 clients", least[1]))
    ),
    *(
        Row(
            title=f"GET one conversation, {door}, 16 sockets append, p99",
            key=f"get {door} beside sockets, p99 ms",
            limit=f"bare get {door} beside sockets, p99 ms",
            limit_title="the same SQL, bare",
            ratio_at_most=2.0,
            unit=MS,
            is_quick=door == "native",
        )
        for door in reads.ONE
    ),
    *(
        Row(
            title=f"{title}, an agent's step hangs, median",
            key=f"{key} beside a hanging step, median ms",
            limit=f"{key} idle, median ms",
            limit_title="the same, idle",
            ratio_at_most=1.5,
            unit=MS,
            on_sqlite=True,
        )
        for key, title in (
            ("search", "V1 events/search"),
            ("get", "V1 GET one conversation"),
            ("health", "/health"),
            ("list", "the list"),
        )
    ),
    *(
        Row(
            title=f"{title}, the library of models is imported, median",
            key=f"{key} {importing.BESIDE}, median ms",
            limit=f"{key} {importing.IDLE}, median ms",
            limit_title="the same, idle",
            ratio_at_most=2.0,
            unit=MS,
            on_sqlite=True,
        )
        for key, title in (
            ("get", "one conversation"),
            ("list", "the list"),
            ("append", "an append by REST"),
            ("alive", "the probe of life"),
        )
    ),
    Row(
        title="an append by REST, a conversation of 1,000,000 events is purged, median",
        key=f"append {purging.BESIDE}, median ms",
        limit=f"append {purging.IDLE}, median ms",
        limit_title="the same, idle",
        ratio_at_most=2.0,
        unit=MS,
        on_sqlite=True,
        is_quick=False,
    ),
    *(
        Row(
            title=f"{title}, another locked for 40 writers, p95",
            key=f"{key} {locked.BESIDE}, p95 ms",
            limit=f"{key} {locked.IDLE}, p95 ms",
            limit_title="the same, idle",
            ratio_at_most=2.0,
            unit=MS,
            on_sqlite=True,
            only_on="PostgreSQL" if key in locked.WRITTEN else None,
        )
        for key, title in (
            ("get", "one conversation"),
            ("append", "an append by REST"),
            ("alive", "the probe of life"),
            ("health", "the probe of health"),
        )
    ),
    Row(
        title="import of JSON lines, a conversation of 20,000 events",
        key="moving in",
        limit="bulk insert",
        limit_title="bare bulk insert",
        ratio_at_least=0.35,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="import of JSON lines, its rate",
        key="moving in",
        at_least=8_000,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="import of JSON lines, memory growth",
        key="moving in, MB",
        below=100,
        unit=MB,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="verify 1,000,000 events",
        key="verify, s",
        limit="scan, s",
        limit_title="bare scan with SHA-256",
        below=60,
        unit=S,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="verify 1,000,000 events, memory",
        key="verify, MB",
        below=200,
        unit=MB,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="a writer's answer while it stays locked, longest",
        key=f"{locked.WAITS}, longest ms",
        below=locked.TOLD_WITHIN_MS,
        unit=MS,
        on_sqlite=True,
    ),
    *(
        Row(
            title=f"{title}, beside an agent server",
            key=key,
            limit=beside.theirs(key),
            limit_title="openhands-agent-server",
            ratio_at_least=at_least,
            ratio_at_most=at_most,
            unit=unit,
            on_sqlite=True,
            is_quick=False,
            needs_agent_server=True,
        )
        for title, key, unit, at_least, at_most in (
            (f"page of {beside.PAGE} V1 events", beside.PAGE_KEY, "answers/s", 1.0, None),
            (f"join with {beside.EVENTS:,} V1 events", beside.JOIN_KEY, MS, None, 1.0),
        )
    ),
    Row(
        title="1,000 V1 sockets on one conversation, 200 events, deliveries",
        key="audience",
        limit="bare audience",
        limit_title="bare sockets",
        ratio_at_least=0.5,
        unit="deliveries/s",
    ),
    Row(
        title="1,000 V1 sockets on one conversation, p99 from sent to shown", key="audience, p99 ms", unit=MS
    ),
    *(
        Row(
            title=f"1,000 V1 sockets{title}, half the rate of bare ones, p99 from sent to shown",
            key=f"{key}, p99 ms",
            limit="bare paced audience, p99 ms",
            limit_title="bare sockets",
            ratio_at_most=2.0,
            unit=MS,
            is_quick=False,
        )
        for key, title in (
            ("paced audience", ""),
            ("paced audience, one mute", " and one that never reads"),
        )
    ),
    *(
        Row(
            title=f"{asked}, while one user floods: {flood.title}, p95",
            key=floods.key(name, question, floods.BESIDE),
            limit=floods.key(name, question, floods.IDLE),
            limit_title="the same, idle",
            ratio_at_most=2.0,
            spare=50.0,
            unit=MS,
            on_sqlite=True,
            is_quick=False,
        )
        for name, flood in floods.FLOODS.items()
        for question, asked in (("get", "one conversation"), ("append", "an append by REST"))
    ),
    *(
        Row(
            title=f"{title}, {name}",
            key=key.format(name),
            limit=key.format(clusters.CLUSTERS[0].name),
            limit_title="a standalone server",
            unit=unit,
            only_on="PostgreSQL",
            is_quick=False,
        )
        for title, key, unit in (
            (f"append in a cluster, {clusters.SOCKETS} sockets", "append, {}", "events/s"),
            (f"answers in a cluster, {clusters.TALKERS} conversations", "answers, {}", "answers/s"),
            ("first piece of an answer in a cluster, idle", "first piece idle, {}, median ms", MS),
            (
                f"first piece of an answer in a cluster, {clusters.TALKERS} conversations",
                "first piece under load, {}, median ms",
                MS,
            ),
        )
        for name in (
            cluster.name for cluster in clusters.CLUSTERS[1:] if key.format(cluster.name) in cluster.keys
        )
    ),
    Row(
        title="list a directory of 100,000 files of a workspace",
        key="list files, ms",
        limit="scan files, ms",
        limit_title="bare scan, sorted",
        below=1_000,
        unit=MS,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="first output of an agent's command at a reader",
        key="first output, ms",
        limit="first output by a pipe, ms",
        limit_title="bare pipe",
        below=50,
        unit=MS,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(
        title="a shell in the sandbox, from start to end",
        key="sandbox start, ms",
        limit="bash start, ms",
        limit_title="the shell alone",
        ratio_at_most=10,
        unit=MS,
        on_sqlite=True,
        is_quick=False,
    ),
    Row(title="HTML of 50 recorded events", key="shown page, ms", unit=MS),
    Row(
        title="HTML of one event, the costliest of all hostile texts in all places",
        key="shown costliest, ms",
        limit="shown page, ms",
        limit_title="50 recorded events",
        ratio_at_most=12.0,
        unit=MS,
        on_sqlite=True,
    ),
]


def chosen(names: Sequence[str], *, quick: bool = False) -> list[Row]:
    """Return the rows in whose title one of these stands; all if there is none, or those that `quick` has."""
    return [row for row in ROWS if row.is_called(names) and (names or row.is_quick or not quick)]
