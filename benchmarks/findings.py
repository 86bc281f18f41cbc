"""What the rounds say about each row, and whether that is what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.rows import MB, Row
from benchmarks.samples import Samples

_ENGINE_LIMITS = {"PostgreSQL": "pgbench", "SQLite": "bare loop, 1 connection"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What the rounds say about one row."""

    engine: str
    title: str
    unit: str
    limit_title: str
    target: str
    value: float | None = None
    """None where nothing was measured."""
    limit: float | None = None
    ratio: float | None = None
    is_met: bool | None = None
    """None where nothing is asked."""
    load: float | None = None
    """The percent of the machine that others used just before: the median of the rounds."""
    failures: Sequence[str] = ()
    """Why it could not be measured, in some rounds or in all."""


def findings(engine: str, rows: Sequence[Row], samples: Samples) -> list[Finding]:
    """Return what the samples say about each row; most targets hold for PostgreSQL only."""
    return [_finding(engine, row, samples) for row in rows if row.only_on in (None, engine)]


def _finding(engine: str, row: Row, samples: Samples) -> Finding:
    asked = row.on_sqlite or engine == "PostgreSQL"
    values, limits = samples.of(row.key), samples.of(row.limit) if row.limit else []
    # Rounds are compared within themselves: what slows a round down slows both of its sides.
    pairs = list(samples.paired(row.key, row.limit)) if row.limit else []
    value = (max if row.unit == MB else median)(values) if values else None
    ratio = median(value / limit for value, limit in pairs) if pairs else None
    judged = median((value - row.spare) / limit for value, limit in pairs) if pairs else None
    is_measured = value is not None and (ratio is not None or not row.limit)
    return Finding(
        engine=engine,
        title=row.title,
        unit=row.unit,
        limit_title=_limit_title(engine, row),
        target=_target(row) if asked else "",
        value=value,
        limit=median(limits) if limits else None,
        ratio=ratio,
        is_met=_is_met(row, value, judged) if asked and is_measured else None,
        load=samples.load(*row.keys),
        failures=samples.failures(*row.keys),
    )


def _limit_title(engine: str, row: Row) -> str:
    if not row.limit_title.startswith("engine"):
        return row.limit_title
    return row.limit_title.replace("engine", "pgbench") if engine == "PostgreSQL" else _ENGINE_LIMITS[engine]


def _target(row: Row) -> str:
    if row.ratio_at_least is not None:
        return f"ratio ≥ {row.ratio_at_least:.2f}"
    if row.ratio_at_most is not None:
        spare = f", and {row.spare:.0f} {row.unit}" if row.spare else ""
        return f"ratio ≤ {row.ratio_at_most:.2f}{spare}"
    if row.at_least is not None:
        return f"≥ {row.at_least:,.0f} {row.unit}"
    return f"< {row.below:,.0f} {row.unit}" if row.below is not None else ""


def _is_met(row: Row, value: float | None, ratio: float | None) -> bool | None:
    if row.ratio_at_least is not None:
        return ratio is not None and ratio >= row.ratio_at_least
    if row.ratio_at_most is not None:
        return ratio is not None and ratio <= row.ratio_at_most
    if row.at_least is not None:
        return value is not None and value >= row.at_least
    return value is not None and value < row.below if row.below is not None else None
