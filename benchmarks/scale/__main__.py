"""Fill databases of several sizes, and say what they occupy and how long clients wait for their calls.

It needs a PostgreSQL that may be filled (TEST_DATABASE_URL): some 3 kB of disk for each event. A database
that an earlier run has filled is used again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import machine
from benchmarks.databases import DATABASE_URL, PostgreSQL
from benchmarks.scale import filling, partitions, queries, search_index, sizes, tables

RESULTS = Path(__file__).resolve().parent.parent / "results"
PREFIX = "convserver_scale_"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # end the servers, too
    if asked.remove:
        for count in asked.events:
            PostgreSQL(DATABASE_URL, f"{PREFIX}{count}").remove()
        return 0
    databases = {count: PostgreSQL(DATABASE_URL, f"{PREFIX}{count}") for count in sorted(asked.events)}
    with TemporaryDirectory(prefix="convserver-scale-") as name:
        found = _measured(databases, Path(name), asked)
    path = asked.output or RESULTS / f"scale-{datetime.now(UTC):%Y-%m-%d}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(tables.markdown(found))
    _say(f"raw numbers in {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--events",
        type=int,
        nargs="+",
        default=[100_000, 1_000_000, 10_000_000],
        help="events in each of the databases (100000 1000000 10000000)",
    )
    parser.add_argument(
        "--search-up-to",
        type=int,
        default=1_000_000,
        metavar="EVENTS",
        help="leave the search index of larger databases empty, because to fill it takes long (1000000)",
    )
    parser.add_argument("--partitions", action="store_true", help="partition the smallest of them, too")
    parser.add_argument("--remove", action="store_true", help="remove the databases of these sizes and end")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the numbers are written")
    return parser


def _measured(
    databases: Mapping[int, PostgreSQL], directory: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    for count, database in databases.items():
        filling.fill(database, count, directory, _say)
        if count <= asked.search_up_to:
            search_index.fill(database, _say)
    found: dict[str, Any] = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.facts(),
        "engine": next(iter(databases.values())).facts(),
        "counts": {count: sizes.counts(database) for count, database in databases.items()},
        "bytes": {count: sizes.sizes(database) for count, database in databases.items()},
    }
    _say("asking")
    found["ms"] = queries.latencies_ms(
        databases, directory, indexed=[count for count in databases if count <= asked.search_up_to]
    )
    found["appends/s"] = queries.appends_per_s(databases, directory)
    if asked.partitions:
        found["partitions"] = partitions.measured(min(databases.items())[1], directory, _say)
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
