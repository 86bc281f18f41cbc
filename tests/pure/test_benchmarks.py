"""`make bench`: what fails, fails alone; rows are chosen by name; each round is written as it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks import findings, measurements, rows, table
from benchmarks.databases import SQLite
from benchmarks.flooding.floods import Floods, require_a_flood
from benchmarks.job import ClientFailed
from benchmarks.limits import agent_server
from benchmarks.measured.lists import Lists
from benchmarks.measurements import MEASUREMENTS, Measurement
from benchmarks.report import Report
from benchmarks.rounds import Rounds
from benchmarks.samples import Samples
from benchmarks.workbench import QUICK, Workbench

ROWS = [rows.Row(title="the quick one", key="quick"), rows.Row(title="the broken one", key="broken")]

PLAN = replace(QUICK, patience_s=0)
"""No test waits for a quiet machine."""


class Clock:
    """A clock that goes on only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def _quick(bench: Workbench) -> Iterator[tuple[str, float]]:
    yield "quick", 7.0


def _broken(bench: Workbench) -> Iterator[tuple[str, float]]:
    raise ClientFailed("The server hung up.")
    yield


def _unprepared(bench: Workbench) -> None:
    raise ClientFailed("There was nothing to fill.")


BOTH = [Measurement(keys=["broken"], measure=_broken), Measurement(keys=["quick"], measure=_quick)]


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A workbench on an empty SQLite database."""
    database = SQLite(tmp_path)
    return Workbench(database, Lists({}, tmp_path), Floods(database, tmp_path), PLAN, tmp_path)


def _shown(bench: Workbench, measured: Sequence[Measurement], path: Path, *, rounds: int = 1) -> str:
    running, report = Rounds(bench, measured, lambda text: None), Report(path, datetime.now(UTC), ROWS)
    report.begin("sqlite", bench.database, running.samples)
    running.prepare()
    for number in range(rounds):
        running.run(number)
    report.write()
    return table.markdown(report.findings())


def test_a_measurement_that_fails_is_one_failing_row(bench: Workbench, tmp_path: Path) -> None:
    shown = _shown(bench, BOTH, tmp_path / "found.json")
    assert "| SQLite | the quick one | 7/s |" in shown
    assert "| SQLite | the broken one |  |  |  |  |  | FAILED |" in shown
    assert "- SQLite, the broken one: The server hung up." in shown


def test_what_cannot_be_prepared_fails_alone(bench: Workbench, tmp_path: Path) -> None:
    unprepared = Measurement(keys=["broken"], measure=_quick, prepare=_unprepared)
    shown = _shown(bench, [unprepared, BOTH[1]], tmp_path / "found.json")
    assert "| SQLite | the quick one | 7/s |" in shown
    assert "- SQLite, the broken one: There was nothing to fill." in shown


def test_a_round_is_in_the_file_when_it_has_ended(bench: Workbench, tmp_path: Path) -> None:
    _shown(bench, BOTH, tmp_path / "found.json", rounds=2)
    assert json.loads((tmp_path / "found.json").read_text())["rounds"] == {"SQLite": {"quick": [7.0, 7.0]}}


def test_the_first_round_is_whole_and_the_next_one_only_where_there_is_time(bench: Workbench) -> None:
    clock = Clock()

    def slow(bench: Workbench) -> Iterator[tuple[str, float]]:
        clock.seconds += PLAN.budget_s
        yield "slow", 1.0

    measured = [Measurement(keys=["slow"], measure=slow), BOTH[1]]
    running = Rounds(bench, measured, lambda text: None, now=clock)
    assert (running.run(0), running.run(1)) == (True, False)
    assert (running.samples.of("slow"), running.samples.of("quick")) == ([1.0], [7.0])


def test_what_is_measured_only_once_takes_no_later_round_its_time(bench: Workbench) -> None:
    clock = Clock()

    def slow(bench: Workbench) -> Iterator[tuple[str, float]]:
        clock.seconds += 0.9 * PLAN.budget_s
        yield "slow", 1.0

    once = Measurement(keys=["slow"], measure=slow, is_steady=True)
    running = Rounds(bench, [once, BOTH[1]], lambda text: None, now=clock)
    assert (running.run(0), running.run(1)) == (True, True)


def test_rows_are_chosen_by_a_part_of_their_title() -> None:
    chosen = rows.chosen(["APPEND, 1 s", "/health"])
    assert [row.title for row in chosen] == ["append, 1 socket", "/health, an agent's step hangs, median"]


def test_quick_leaves_out_the_floods_unless_they_are_chosen() -> None:
    assert not any("floods" in row.title for row in rows.chosen([], quick=True))
    assert rows.chosen(["floods"], quick=True) == rows.chosen(["floods"]) != []


def test_a_chosen_row_costs_no_more_than_what_it_compares() -> None:
    (chosen,) = rows.chosen(["append, 1 socket"])
    wanted = measurements.wanted(chosen.keys, "SQLite")
    assert [key for each in wanted for key in each.keys] == ["limit/1", "append/1"]


def test_what_only_one_engine_can_do_is_not_measured_on_the_other() -> None:
    keys = [key for row in rows.chosen(["in a cluster"]) for key in row.keys]
    assert measurements.wanted(keys, "PostgreSQL") != []
    assert measurements.wanted(keys, "SQLite") == []


@pytest.mark.parametrize(("flooded_ms", "is_met"), [(69.0, True), (71.0, False)])
def test_what_a_row_spares_comes_on_top_of_its_ratio(flooded_ms: float, is_met: bool) -> None:
    row = rows.Row(
        title="flooded", key="flooded", limit="idle", ratio_at_most=2.0, spare=50.0, on_sqlite=True
    )
    samples = Samples()
    samples.keep(0, "idle", 10.0, busy=0.0)
    samples.keep(0, "flooded", flooded_ms, busy=0.0)
    (found,) = findings.findings("SQLite", [row], samples)
    assert found.is_met is is_met


@pytest.mark.parametrize("said", ["", "flooding", '{"401": 5}', '{"sent": 5, "4404": 1}', "{}"])
def test_what_the_server_does_not_take_for_its_users_is_no_flood(said: str) -> None:
    with pytest.raises(ClientFailed):
        require_a_flood("events-1", said, "")
    require_a_flood("events-1", 'flooding\n{"sent": 5, "429": 3}', "")


@pytest.mark.parametrize(
    ("named", "told"), [("", "neither python3.12 nor python3.13"), ("sh", "sh is not Python")]
)
def test_without_a_new_python_there_is_no_agent_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, told: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv(agent_server.PYTHON_VARIABLE, named)
    with pytest.raises(agent_server.NoAgentServer, match=f"{told}.*{agent_server.PYTHON_VARIABLE}"):
        agent_server.python(tmp_path / "environment")


def test_an_agent_server_that_is_installed_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".installed").touch()
    assert agent_server.python(tmp_path) == tmp_path / "bin" / "python"


def test_every_row_is_measured() -> None:
    measured = {key for each in MEASUREMENTS for key in each.keys}
    assert {key for row in rows.ROWS for key in row.keys} <= measured
