"""The table of a drill: what was broken, what was counted, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from faults.cluster.disturbances import FROZEN, KILLED, PROMISED_S, Record
from faults.cluster.judge import Findings

SHOWN_MAX = 20


def text(findings: Findings, record: Record, *, has_redis: bool) -> str:
    """Return the table as Markdown, and then every sentence about what is wrong."""
    hints = "Redis" if has_redis else "PostgreSQL"
    lines = [f"\nHints over {hints}.\n", "| broken | times |", "|---|---:|"]
    lines += [f"| {what} | {count} |" for what, count in sorted(record.counts.items())]
    lines += [
        "",
        "| turns taken over after | turns | median | p95 | max | promised | later |",
        f"|---|{'---:|' * 6}",
    ]
    lines += [_takeovers(what, record.takeovers[what]) for what in (KILLED, FROZEN)]
    lines += ["", "| counted | |", "|---|---:|"]
    lines += [f"| {what} | {count:,} |" for what, count in findings.counts.items()]
    lines += [
        f"| turns that nobody took over | {record.never} |",
        f"| the machine's time that was in use | {record.busy:.0%} |",
        f"| **wrong** | {len(findings.wrong)} |",
    ]
    return "\n".join([*lines, *_wrong(findings.wrong)])


def _takeovers(what: str, seconds: Sequence[float]) -> str:
    if not seconds:
        return f"| {what} | 0 | | | | | |"
    p95 = quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    promised = PROMISED_S[what]
    later = sum(each > promised for each in seconds)
    times = " | ".join(f"{each:.1f} s" for each in (median(seconds), p95, max(seconds), promised))
    return f"| {what} | {len(seconds)} | {times} | {later} |"


def _wrong(sentences: Sequence[str]) -> Iterator[str]:
    yield from (f"- {sentence}" for sentence in sentences[:SHOWN_MAX])
    if len(sentences) > SHOWN_MAX:
        yield f"- and {len(sentences) - SHOWN_MAX} more"
