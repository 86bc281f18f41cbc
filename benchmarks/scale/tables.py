"""The numbers as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(found: Mapping[str, Any]) -> str:
    """Return a table of sizes, bytes for each event, and one of times, as ratios to the smallest database."""
    counts = list(found["counts"])
    events = {count: found["counts"][count]["events"] for count in counts}
    lines = _table(
        ["", *(f"{count:,} events" for count in counts), "bytes an event"],
        [
            [
                name,
                *(_amount(found["bytes"][count][name]) for count in counts),
                _per_event([(found["bytes"][count][name], events[count]) for count in counts]),
            ]
            for name in found["bytes"][counts[0]]
        ],
    )
    times = [
        [
            name,
            *(f"{by_size[count] / by_size[counts[0]]:.2f}" if count in by_size else "" for count in counts),
            f"{by_size[counts[0]]:.2f}",
        ]
        for name, by_size in found["ms"].items()
    ]
    rates = found["appends/s"]
    lines += ["", *_table(["", *(f"{count:,} events" for count in counts), "1.00 is, in ms"], times)]
    ratios = [f"{rates[count] / rates[counts[0]]:.2f}" for count in counts]
    lines += ["", f"appends by 16 sockets: {', '.join(ratios)}; 1.00 is {rates[counts[0]]:,.0f}/s"]
    return "\n".join(lines)


def _per_event(sizes: Sequence[tuple[int, int]]) -> str:
    """Return the bytes for each event in the largest database that has any."""
    return next((f"{size / events:.0f}" for size, events in reversed(sizes) if size > events), "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _amount(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
