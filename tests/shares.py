"""Which files of the suite run in which of several runs at a time, so that all take about as long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SQLITE = "SQLite"
SERVERS = "PostgreSQL + Redis"

RUNS = {SQLITE: 3, SERVERS: 2}
"""So many at a time. A test waits about as long as it works, for processes, pages and the database."""

ROOT = Path(__file__).parent.parent

SLOW_S: Mapping[str, Mapping[str, float]] = {
    SQLITE: {
        "browser/test_approval": 70,
        "browser/test_outgoing": 61,
        "browser/test_streaming": 51,
        "test_v0_clients": 48,
        "browser/test_agent_states": 44,
        "browser/test_accessibility": 42,
        "browser/test_login": 40,
        "test_interruption": 36,
        "test_database_files": 36,
        "browser/test_hostile_pages": 34,
        "browser/test_drafts": 34,
        "browser/test_list": 33,
        "browser/test_late_news": 32,
        "test_v1_server": 28,
        "browser/test_first_visit": 28,
        "test_v1_agent_face": 28,
        "test_shutdown": 27,
        "test_schemathesis": 26,
        "test_search": 26,
        "test_configuration": 26,
        "browser/test_long_log": 25,
        "test_quickstart": 25,
        "test_hints": 24,
        "test_v0_packets": 23,
        "test_admin": 23,
        "test_upgrades": 23,
        "test_commands_across_processes": 22,
        "browser/test_keyboard": 21,
        "test_access": 21,
        "test_rendering": 20,
        "browser/test_palette": 20,
        "test_v1_agent_events": 18,
        "test_connections": 18,
        "browser/test_menu": 18,
        "test_agent": 16,
        "test_password_line": 16,
        "test_webhooks": 16,
        "test_v0_lists": 15,
        "test_v1_runs": 15,
        "browser/test_list_place": 15,
    },
    SERVERS: {
        "test_idle": 71,
        "test_v0_clients": 45,
        "test_v1_runs": 37,
        "test_interruption": 33,
        "test_commands_across_processes": 32,
        "test_upgrades": 28,
        "test_shutdown": 28,
        "browser/test_connection": 32,
        "test_v1_server": 26,
        "test_v1_agent_events": 24,
        "test_agent": 23,
        "test_v1_socket": 23,
        "test_lost_commits": 23,
        "test_search": 22,
        "test_exhausted_database": 21,
        "test_webhooks": 21,
        "test_saves": 18,
        "test_replaced_databases": 17,
        "test_v1_app_events": 15,
        "test_manager_rounds": 15,
        "test_v0_lists": 13,
        "test_v1_app_conversations": 12,
    },
}
"""Seconds that files take, as `make test` says at its end; round figures do."""

OTHER_S = {SQLITE: 4.0, SERVERS: 2.5}
"""So many seconds a file counts that is not among the slow ones."""


def divided(engines: str) -> list[list[str]]:
    """Divide all files of tests between the runs on these engines."""
    seconds = {file: seconds_of(file, engines) for file in all_files()}
    return shares(seconds, RUNS[engines])


def seconds_of(file: str, engines: str) -> float:
    """Return about how long a file takes on these engines, in whatever folder it is."""
    known = SLOW_S[engines].items()
    return next((seconds for name, seconds in known if file.endswith(f"/{name}.py")), OTHER_S[engines])


def all_files() -> list[str]:
    """Return every file of tests, as seen from the root of the repository, in order."""
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))


def shares(seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Divide files into `count` shares of about the same length; each file keeps its place in the order.

    From the slowest on, each goes to the share that is the shortest so far.
    """
    lengths = [0.0] * count
    share_of: dict[str, int] = {}
    for file in sorted(seconds, key=lambda file: -seconds[file]):
        share_of[file] = lengths.index(min(lengths))
        lengths[share_of[file]] += seconds[file]
    return [[file for file in seconds if share_of[file] == share] for share in range(count)]
