"""What the log, the readers and the tools must agree on after a drill."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from faults.cluster.people import Talk
from faults.cluster.script import ONCE, is_whole, told_in
from faults.instances import PostgreSQL

CUT_OFF = ("interrupted", "error", "stopped")
"""How the text of a turn begins that did not end by itself."""

_EVENTS = """
    SELECT c.public_id, e.seq, e.event_id, e.kind, e.source, e.text, e.turn_id, e.epoch
    FROM conversations_event e JOIN conversations_conversation c ON c.id = e.conversation_id
    ORDER BY c.public_id, e.seq
"""


class Row(NamedTuple):
    """An event as the log has it."""

    public_id: str
    seq: int
    event_id: str
    kind: str
    source: str
    text: str
    turn_id: str | None
    epoch: int | None


@dataclass(slots=True)
class Findings:
    """What was counted, and every sentence about what should not be."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def judged(postgresql: PostgreSQL, talks: Sequence[Talk], runs: Path) -> Findings:
    """Compare what was acknowledged, what was read and what was done with the log."""
    logs: dict[str, list[Row]] = defaultdict(list)
    for values in postgresql.ask(_EVENTS):
        row = Row(*values)  # type: ignore[arg-type]
        logs[row.public_id].append(row)
    findings = Findings()
    for talk in talks:
        log = logs[talk.public_id]
        for sentence in _wrong_in(talk, log, findings.counts):
            findings.wrong.append(f"{talk.public_id}: {sentence}")
    findings.wrong += wrong_runs(runs, findings.counts)
    [(refused,)] = postgresql.ask("SELECT coalesce(sum(refused_writes), 0) FROM sessions_app_agentloop")
    findings.counts["writes refused"] = int(str(refused))
    return findings


def _wrong_in(talk: Talk, log: Sequence[Row], counts: Counter[str]) -> Iterator[str]:
    counts["events"] += len(log)
    yield from talk.faults
    if [row.seq for row in log] != list(range(len(log))):
        yield "the log has gaps"
    if [(row.seq, row.event_id) for row in log] != [(each.seq, each.event_id) for each in talk.seen]:
        yield f"a reader has {len(talk.seen)} events, the log {len(log)}, or others"
    yield from _lost(talk, log, counts)
    yield from _doubled(log)
    yield from _written_by_former_loops(log)
    yield from _unanswered(talk, log, counts)


def _lost(talk: Talk, log: Sequence[Row], counts: Counter[str]) -> Iterator[str]:
    counts["messages acknowledged"] += len(talk.acknowledged)
    counts["messages sent again"] += talk.repeats
    counts["joins"] += talk.joins
    stored = {row.text: row.seq for row in log if row.source == "user" and row.kind == "message"}
    for seq, text in talk.acknowledged.values():
        if stored.get(text) != seq:
            yield f"{text} was acknowledged as event {seq}, and the log has it as {stored.get(text)}"


def _doubled(log: Sequence[Row]) -> Iterator[str]:
    told = Counter(row.text for row in log if row.source == "user" and row.kind == "message")
    yield from (f"{text} is in the log {count} times" for text, count in told.items() if count > 1)
    ends = Counter(row.turn_id for row in log if row.kind == "turn")
    yield from (f"turn {turn} has ended {count} times" for turn, count in ends.items() if count > 1)


def _written_by_former_loops(log: Sequence[Row]) -> Iterator[str]:
    newest = 0
    for row in log:
        if row.epoch is not None:
            if row.epoch < newest:
                yield f"event {row.seq} was written by loop {row.epoch} after loop {newest} had begun"
            newest = max(newest, row.epoch)


def _unanswered(talk: Talk, log: Sequence[Row], counts: Counter[str]) -> Iterator[str]:
    """Check that each message has one whole answer, or that its turn says why it has none."""
    answers = [row for row in log if row.kind == "message" and row.source == "agent"]
    whole = [row for row in answers if is_whole(row.text)]
    counts["answers cut off, and kept"] += len(answers) - len(whole)
    told = Counter(text for row in whole for text in told_in(row.text))
    marked = [row for row in log if row.kind == "turn" and row.text.startswith(CUT_OFF)]
    counts["turns marked as interrupted"] += len(marked)
    for seq, text in talk.acknowledged.values():
        if told[text] == 1:
            counts["messages answered once"] += 1
        elif told[text] > 1:
            yield f"{text} was answered {told[text]} times"
        elif any(row.seq > seq for row in marked):
            counts["messages of a turn that is marked"] += 1
        else:
            yield f"{text} has no answer"


def wrong_runs(runs: Path, counts: Counter[str]) -> Iterator[str]:
    """Yield a sentence for each call of a tool that must not run twice, and did; count all runs."""
    lines = Counter(runs.read_text().splitlines() if runs.exists() else ())
    for line, count in lines.items():
        name, _, which = line.partition(" ")
        counts[f"runs of the tool `{name}`"] += count
        if name == ONCE and count > 1:
            yield f"the tool {ONCE} ran {count} times for {which}"
        elif count > 1:
            counts["of which repeated"] += count - 1
