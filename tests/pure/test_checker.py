"""The checker of histories: it passes what is right, names what is wrong, and needs a second for a lot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.checker import __main__ as command
from faults.checker import history
from faults.checker.history import Did, HistoryFile, Record
from faults.checker.judge import Findings, Rule, checked

TALK = "talk"


def stored(*keys: str) -> list[Record]:
    return [Record(Did.STORED, TALK, key, seq) for seq, key in enumerate(keys)]


def sent(key: str) -> Record:
    return Record(Did.INVOKE, TALK, key)


def acked(key: str, seq: int) -> list[Record]:
    return [sent(key), Record(Did.ACK, TALK, key, seq)]


def refused(key: str) -> list[Record]:
    return [sent(key), Record(Did.REFUSED, TALK, key)]


def unanswered(key: str) -> list[Record]:
    return [sent(key), Record(Did.UNKNOWN, TALK, key)]


def read(*events: tuple[int, str], after: int = -1) -> list[Record]:
    joined = Record(Did.JOIN, TALK, "reader", after)
    return [joined, *(Record(Did.READ, TALK, "reader", seq, key) for seq, key in events)]


def shown(*events: tuple[int, str]) -> list[Record]:
    joined = Record(Did.JOIN, TALK, "reader", -1)
    return [joined, *(Record(Did.SHOWN, TALK, "reader", seq, key) for seq, key in events)]


def created(key: str, talk: str, text: str = "") -> list[Record]:
    return [Record(Did.CREATE, "", key), Record(Did.CREATED, talk, key, -1, text)]


WRONG: dict[Rule, list[tuple[list[Record], list[Record]]]] = {
    Rule.LOST: [(acked("a", 0), []), (acked("a", -1), [])],
    Rule.MOVED: [
        ([*acked("a", 0), *acked("b", 0)], stored("a", "b")),
        ([*unanswered("b"), *acked("a", 0)], stored("b", "a")),
    ],
    Rule.DOUBLED: [(acked("a", 0), stored("a", "a"))],
    Rule.GAP: [(acked("a", 1), [Record(Did.STORED, TALK, "a", 1)])],
    Rule.DISORDER: [
        ([*acked("a", 1), *acked("b", 0)], stored("b", "a")),
        ([*acked("a", 1), *unanswered("b")], stored("b", "a")),
        ([sent("a"), *read((0, "b"), (1, "a")), *unanswered("b")], stored("b", "a")),
    ],
    Rule.DENIED: [
        (refused("a"), stored("a")),
        ([*refused("a"), *refused("a")], stored("a")),
        ([*refused("a"), *acked("b", 1), *acked("a", 0)], stored("a", "b")),
    ],
    Rule.UNSENT: [([], stored("a"))],
    Rule.READ_GAP: [
        ([*acked("a", 0), *acked("b", 1), *read((1, "b"))], stored("a", "b")),
        ([*acked("a", 0), *read((0, "a"), (0, "a"))], stored("a")),
        ([*acked("a", 0), *acked("b", 1), *shown((1, "b"), (0, ""))], stored("a", "b")),
    ],
    Rule.READ_OTHER: [
        ([*acked("a", 0), *read((0, "forged"))], stored("a")),
        ([*unanswered("a"), *read((0, "a"))], []),
        ([*acked("a", 0), *shown((0, "forged"))], stored("a")),
        ([*unanswered("a"), *shown((0, ""))], []),
    ],
    Rule.STALE: [
        (
            [*acked("a", 0), Record(Did.LOOK, TALK, "?"), Record(Did.LOOKED, TALK, "?", -1)],
            stored("a"),
        ),
        (
            [*acked("a", -1), Record(Did.LOOK, TALK, "?"), Record(Did.LOOKED, TALK, "?", -1)],
            stored("a"),
        ),
    ],
    Rule.TWICE_CREATED: [
        (created("key", "one"), [Record(Did.MADE, "one", "key"), Record(Did.MADE, "other", "key")]),
        ([*created("key", "one"), *created("key", "other")], [Record(Did.MADE, "one", "key")]),
    ],
    Rule.NOT_CREATED: [(created("key", "one"), [])],
    Rule.CREATED_OTHERWISE: [
        (created("key", "one", "said-a"), [Record(Did.MADE, "one", "key", -1, text)])
        for text in ("", "said-a said-a")
    ],
    Rule.NOT_PURGED: [([Record(Did.PURGED, TALK, "")], stored("a"))],
    Rule.LEAKED: [([Record(Did.LEAKED, TALK, "", -1, "open sesame")], [])],
    Rule.UNEXPECTED: [([sent("a"), Record(Did.UNEXPECTED, TALK, "a", -1, "500")], [])],
}


def test_there_is_a_wrong_history_for_every_rule() -> None:
    assert WRONG.keys() == set(Rule)


def test_what_is_wrong_is_named(subtests: pytest.Subtests) -> None:
    for rule, done, kept in [
        (rule, done, kept) for rule, histories in WRONG.items() for done, kept in histories
    ]:
        with subtests.test(rule=rule, done=done, kept=kept):
            findings = checked(done, kept)
            assert rule in findings.broken
            assert rule in {violation.rule for violation in findings.violations}


def test_each_wrong_history_breaks_its_own_rule_first_of_all() -> None:
    only = set(Rule) - {Rule.MOVED, Rule.GAP, Rule.READ_OTHER, Rule.TWICE_CREATED}
    for rule in only:
        for done, kept in WRONG[rule]:
            assert set(checked(done, kept).broken) == {rule}, (rule, done)


RIGHT: dict[str, tuple[list[Record], list[Record]]] = {
    "a wire that tells no places": (
        [*acked("a", -1), *acked("b", -1), Record(Did.LOOK, TALK, "?"), Record(Did.LOOKED, TALK, "?", 1)],
        stored("a", "b"),
    ),
    "a wire that leaves events out": ([*acked("a", 0), *acked("b", 1), *shown((1, ""))], stored("a", "b")),
    "an agent that writes as well": (
        [Record(Did.SHARED, TALK, ""), *acked("a", 0)],
        stored("a", "its answer"),
    ),
    "a purge that goes on": (
        [Record(Did.PURGED, TALK, "")],
        [*stored("a"), Record(Did.REMOVING, TALK, "")],
    ),
    "a purge that is over": ([Record(Did.PURGED, TALK, "")], []),
    "what was sent, imported twice": (
        [*created("key", "one", "said-a"), *created("key", "one", "said-a")],
        [Record(Did.MADE, "one", "key", -1, "said-a")],
    ),
}


def test_what_other_wires_promise_passes(subtests: pytest.Subtests) -> None:
    for name, (done, kept) in RIGHT.items():
        with subtests.test(name):
            assert checked(done, kept).violations == []


@st.composite
def right_histories(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    """A store that does what it promises, used by clients at once: some answers are lost, some refuse."""
    done: list[Record] = []
    log: list[str] = []
    open_tries: list[tuple[str, bool]] = []
    keys = [f"k{number}" for number in range(draw(st.integers(1, 8)))]
    acked: set[str] = set()
    readers = {"r0": -1, "r1": -1}
    done += [Record(Did.JOIN, TALK, reader, -1) for reader in readers]
    for _ in range(draw(st.integers(0, 60))):
        match draw(st.sampled_from(["send", "store", "answer", "read", "rejoin", "look"])):
            case "send":
                key = draw(st.sampled_from(keys))
                if key not in acked:  # a client repeats only what was not acknowledged
                    done.append(sent(key))
                    open_tries.append((key, False))
            case "store" if open_tries:
                at = draw(st.integers(0, len(open_tries) - 1))
                key, _ = open_tries[at]
                if key not in log:
                    log.append(key)
                open_tries[at] = key, True
            case "answer" if open_tries:
                key, is_stored = open_tries.pop(draw(st.integers(0, len(open_tries) - 1)))
                if draw(st.booleans()):
                    done.append(Record(Did.UNKNOWN, TALK, key))
                    if draw(st.booleans()) and key not in log:
                        log.append(key)  # a commit whose answer was lost
                elif is_stored:
                    done.append(Record(Did.ACK, TALK, key, log.index(key)))
                    acked.add(key)
                else:
                    done.append(Record(Did.REFUSED, TALK, key))
            case "read":
                reader = draw(st.sampled_from(sorted(readers)))
                if readers[reader] + 1 < len(log):
                    readers[reader] += 1
                    done.append(Record(Did.READ, TALK, reader, readers[reader], log[readers[reader]]))
            case "rejoin":
                reader = draw(st.sampled_from(sorted(readers)))
                readers[reader] = draw(st.integers(-1, readers[reader]))
                done.append(Record(Did.JOIN, TALK, reader, readers[reader]))
            case "look":
                done += [Record(Did.LOOK, TALK, "?"), Record(Did.LOOKED, TALK, "?", len(log) - 1)]
            case _:
                pass
    return done, stored(*log)


@given(right_histories())
def test_whatever_a_right_store_does_passes(right: tuple[list[Record], list[Record]]) -> None:
    done, kept = right
    assert checked(done, kept).violations == []


@given(right_histories(), st.data())
def test_whatever_is_acknowledged_and_then_taken_away_is_missed(
    right: tuple[list[Record], list[Record]], data: st.DataObject
) -> None:
    done, kept = right
    told = [record.key for record in done if record.did is Did.ACK]
    if not told:
        return
    gone = data.draw(st.sampled_from(told))
    left = [record.key for record in kept if record.key != gone]
    assert Rule.LOST in checked(done, stored(*left)).broken


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = [*acked("ä\n", 0), *read((0, "ä\n"))]
    with HistoryFile(tmp_path / "one") as file:
        for record in records:
            file.add(record)
    history.written(tmp_path / "other", records)
    assert list(history.read(tmp_path / "one")) == list(history.read(tmp_path / "other")) == records


def _long(count: int) -> Iterator[Record]:
    """Yield a right history of so many records, of ten conversations."""
    yield from (Record(Did.JOIN, f"t{talk}", "reader", -1) for talk in range(10))
    for number in range((count - 10) // 4):
        talk, key, seq = f"t{number % 10}", f"k{number}", number // 10
        yield Record(Did.INVOKE, talk, key)
        yield Record(Did.ACK, talk, key, seq)
        yield Record(Did.READ, talk, "reader", seq, key)
        yield Record(Did.STORED, talk, key, seq)


def test_a_long_history_is_checked_in_a_time_that_grows_with_its_length_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenth of a million records takes at most a tenth of a minute."""
    history.written(tmp_path / "history", _long(100_000))
    began = time.process_time()
    assert command.main([str(tmp_path / "history")]) == 0
    assert time.process_time() - began < 6
    assert "0 violations" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history.written(tmp_path / "history", acked("a", 0))
    assert command.main([str(tmp_path / "history")]) == 1
    assert "acknowledged and lost: talk: a was acknowledged as event 0" in capsys.readouterr().out


def test_many_violations_are_counted_and_few_are_kept() -> None:
    findings: Findings = checked([record for n in range(100) for record in acked(f"k{n}", n)], [])
    assert findings.lost == 100
    assert len(findings.violations) < 100
