"""The findings as one Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.findings import Finding
from benchmarks.rows import MB, MS

_HEAD = ("engine", "what", "value", "limit", "limit is", "ratio", "target", "ok?", "load")


def markdown(findings: Sequence[Finding]) -> str:
    """Return the table and what one must know to read it."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(_cells(finding)) for finding in findings)]
    return "\n".join(
        [
            *lines,
            *_failures(findings),
            "",
            "Values are medians of the rounds; ratios are medians of each round's ratio; memory is the",
            "largest growth of any round, against a fresh server after one small join. A round has a median",
            "and a 99th percentile (p99) of its latencies; there a low ratio is the good one. The load is",
            "the part of the machine that others used just before a row was measured.",
        ]
    )


def _cells(finding: Finding) -> list[str]:
    return [
        finding.engine,
        finding.title,
        "" if finding.value is None else _amount(finding.value, finding.unit),
        "" if finding.limit is None else _amount(finding.limit, finding.unit),
        finding.limit_title,
        "" if finding.ratio is None else _ratio(finding.ratio),
        finding.target,
        _verdict(finding),
        "" if finding.load is None else f"{finding.load:.0f} %",
    ]


def _verdict(finding: Finding) -> str:
    if finding.failures and finding.is_met is None:
        return "FAILED"
    return {None: "", True: "yes", False: "NO"}[finding.is_met]


def _failures(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each row that could not be measured in every round."""
    lines = [
        f"- {finding.engine}, {finding.title}: {_summary(reason)}"
        for finding in findings
        for reason in finding.failures
    ]
    return ["", "Not measured in every round:", "", *lines] if lines else []


def _summary(reason: str) -> str:
    """Return the first line of a reason and the last: what failed, and what it says of itself."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else ""


def _amount(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}" if unit in (MB, MS) else f"{value:,.0f}/s"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
