"""Makes docs/faults.md of the last results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faults.catalogue import ROWS, SUITE, Row
from faults.power.installations import OF_ENGINE
from faults.programs import ROOT
from faults.suite.planted import all_kinds
from faults.suite.results import Results

PAGE = ROOT / "docs" / "faults.md"
INTRODUCTION = """# What happens when something breaks

This page is written by `make faults`; the numbers are those of the last run.

A run starts real servers, with a PostgreSQL and a Redis of its own, breaks them on purpose, and mends them, while clients of every
wire use them: they record events and say things (native, V0 by Socket.IO, V1 by REST and by its socket), read, ask how long logs are,
create, start and fork conversations, import a file twice, and delete conversations for good. A third of what they say holds a secret
that their user has stored. On SQLite agents run tools and answer, one of them a program outside the server. Each client logs what it
sent and what it was told. After each round a checker compares that with what the database holds, read without the server:

- what was acknowledged is stored, at the place that was said, once; the first message of a start belongs to it;
- an event that was sent after another one was known comes behind it, and a later read returns both;
- readers got the log from its beginning on, without a gap, and nothing else;
- what was answered with `unavailable`, or in other words that promise that nothing was stored, is not stored unless it was sent again;
- one `Idempotency-Key` has created one conversation or one fork, and a fork begins with what its source has;
- an import has all of its file once, and what was deleted for good is gone, or a purge is still removing it;
- no secret is stored, or shown to a reader;
- no tool that must not run twice has run twice;
- digests are chained, heads are those of the last event, no event is of a loop that was replaced before, and the guards stand.

A few promises are tried by drills of their own, each judged at once: ten writers of one conversation, a loop that is stopped past its
lease and continued, a loop that another host asks for whose clock is an hour off, a checkpoint of SQLite while a thread commits, and an
older copy of SQLite's file in place of it while the log beside it stays.

A busy machine makes a run longer and no answer wrong: it waits up to ten minutes for each start, and for what must happen.

| command | what it does |
|---|---|
| `make faults` | every kind of fault and every drill on both engines, in about eight minutes |
| `make faults ARGS=--quick` | a part of them, in less than a minute: in CI |
| `make faults ARGS=--long` | at least 1,500 faults on both engines at the same time, in at most two hours |
| `make faults ARGS=--planted` | plants each bug below, one after the other, and looks whether it is noticed by what `make faults` runs as well |
| `make faults ARGS=--tests` | runs the tests that the catalogue below names, on SQLite, or on the database of `DATABASE_URL` |

A run prints its seed, and `--seed` draws the same faults at the same moments again. Kinds are chosen by `--only TEXT`, an engine by
`--engine sqlite` or `postgresql`; `--seconds` bounds the time on each engine. `python -m faults.checker FILE` checks a history by itself: a million records in seconds.

The clock is moved for Django's and Python's time of day, not for the kernel's. Each server has a clock of its own. Full disks, read-only
files, syncs that fail and power cuts need Linux and root.

Power is cut on installations of their own, whose data is on a disk that forgets (`faults/power`, a filesystem by FUSE). When all
processes have been killed, what was not synced is gone, in whole or in part, as chance decides: writes of one file in any order and torn
between sectors, names up to some moment. On SQLite's disk a new file is there only once its folder was synced, too, as POSIX says; on
PostgreSQL's once it was synced itself, as on Linux. Where a sync fails, chance decides what has reached the disk, and no later sync tries
the rest again. Elsewhere PostgreSQL does not wait for its disk (`fsync=off`): a killed process leaves
what it wrote to the kernel.
"""


def write(results: Results, path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text("\n".join(_lines(results)) + "\n")


def _lines(results: Results) -> Iterator[str]:
    yield INTRODUCTION
    yield "## What was broken\n"
    yield from _rounds(results.rounds)
    yield "\n## Checkpoint against commit\n"
    yield from _races(results.races)
    yield "\n## Planted bugs\n"
    yield from _planted(results.planted)
    yield "\n## The catalogue\n"
    yield from _catalogue(results)


def _rounds(rounds: dict[str, Any]) -> Iterator[str]:
    if not rounds:
        yield "Not run yet."
        return
    yield (
        "The time until service is that from the end of the fault (for what was killed, ended or cut: from its "
        "beginning, with the start of the successor) to the acknowledgement of an event that was sent after it.\n"
    )
    for engine, run in rounds.items():
        rows = run["rows"]
        total = {
            name: sum(row[name] for row in rows) for name in ("injected", "acknowledged", "lost", "doubled")
        }
        yield (
            f"- {engine}: {_made(run)}, seed {run['seed']}, {run['seconds']:,} s: {total['injected']:,} faults, "
            f"{total['acknowledged']:,} acknowledgements, {total['lost']} lost, {total['doubled']} doubled."
        )
    yield "\n| engine | broken | times | acknowledged | lost | doubled | other breaches | until service: median | worst |"
    yield f"|---|---|{'---:|' * 7}"
    for engine, run in rounds.items():
        yield from (_row(engine, row) for row in run["rows"])


def _races(races: dict[str, Any]) -> Iterator[str]:
    yield (
        "SQLite 3.7.0 to 3.51.2 can lose a commit that begins the write-ahead log anew while a checkpoint begins. A process that "
        "checkpoints all the time is stopped at moments drawn at random, another one commits, and what a new reader finds is "
        "compared (`python -m faults.wal_reset TRIES`). Tries end with the first loss. The first library is the one that servers use; "
        "the second is Python's own, if it has the defect: it shows that the tries can find it.\n"
    )
    if not races:
        yield "Not run yet."
        return
    yield f"{_made(races)}.\n"
    yield "| library | tries | commits lost |\n|---|---:|---:|"
    for row in races["rows"]:
        yield f"| SQLite {row['version']} | {row['tries']:,} | {row['lost']} |"
    if not any(row["lost"] for row in races["rows"]):
        yield (
            "\nNo library has shown the loss in this run, so it proves no more than that; that checkpoints take turns "
            "with commits is shown by `tests/store/test_write_turns.py`."
        )


def _row(engine: str, row: dict[str, Any]) -> str:
    breaches = sum(row["broken"].values()) - row["lost"] - row["doubled"]
    return (
        f"| {engine} | {row['fault']} | {row['injected']} | {row['acknowledged']:,} | {row['lost']} "
        f"| {row['doubled']} | {breaches} | {_seconds(row['median_s'])} | {_seconds(row['worst_s'])} |"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _made(part: dict[str, Any]) -> str:
    return f"{part['date']}, commit {part['commit']}, {part['processors']} processors"


def _planted(planted: dict[str, Any]) -> Iterator[str]:
    yield (
        "Would the suite notice? Each bug replaces one named function of the servers of a run (`faults/planted/`); nothing "
        "in the server itself can be switched off. Then one kind of fault or one drill, each of which `make faults` "
        "runs as well, must show it, by one broken rule.\n"
    )
    if not planted:
        yield "Not run yet."
        return
    rows = planted["rows"]
    caught = sum(row["is_caught"] for row in rows)
    yield f"{_made(planted)}, seed {planted['seed']}: {caught} of {len(rows)} caught.\n"
    yield "| bug | engine | shown by | as | caught | rounds |\n|---|---|---|---|---|---:|"
    for row in rows:
        is_caught = "yes" if row["is_caught"] else "**no**"
        yield (
            f"| `{row['bug']}` | {row['engine']} | {row['fault']} | {row['shown_by']} | {is_caught} "
            f"| {row['rounds']} |"
        )


def _catalogue(results: Results) -> Iterator[str]:
    tests = results.tests
    yield (
        f"Tests: {_made(tests)}. " if tests else "The tests have not been run for this page yet. "
    ) + "A command stands for its whole run; kinds of fault of `make faults` are in brackets.\n"
    yield "| | broken | must hold | tried by | last result |\n|---|---|---|---|---|"
    for row in ROWS:
        tried = "<br>".join([*_names(row), *([row.elsewhere] if row.elsewhere else [])])
        yield f"| {row.id} | {row.broken} | {row.holds} | {tried} | {_result(row, results)} |"


def _names(row: Row) -> Iterator[str]:
    for test in row.tests:
        yield f"`{test.partition('::')[2]}`"
    for command in row.commands:
        kinds = _kinds(row) if command == SUITE else []
        yield f"`{command}`" + (f" ({'; '.join(kinds)})" if kinds else "")


def _kinds(row: Row) -> list[str]:
    kinds = (kind for engines in OF_ENGINE.items() for engine in engines for kind in all_kinds(engine))
    return list(dict.fromkeys(kind.name for kind in kinds if row.id in kind.rows))


def _result(row: Row, results: Results) -> str:
    if not row.is_applicable:
        return "—"
    outcomes = results.tests.get("outcomes", {})
    known = [outcomes[test] for test in row.tests if test in outcomes]
    parts = [f"{known.count('passed')} of {len(row.tests)} tests passed"] if known else []
    parts += _result_of_rounds(row, results.rounds)
    return "; ".join(parts) or "not run for this page"


def _result_of_rounds(row: Row, rounds: dict[str, Any]) -> Iterator[str]:
    kinds = set(_kinds(row))
    rows = [each for run in rounds.values() for each in run["rows"] if each["fault"] in kinds]
    if SUITE in row.commands and rows:
        lost, doubled = (sum(each[name] for each in rows) for name in ("lost", "doubled"))
        yield f"{sum(each['injected'] for each in rows)} faults, {lost} lost, {doubled} doubled"
