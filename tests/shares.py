"""Which files of the suite run in which of several runs at a time, so that all take about as long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

SQLITE = "SQLite"
SERVERS = "PostgreSQL + Redis"

RUNS = {SQLITE: 3, SERVERS: 2}
"""So many at a time. A test waits about as long as it works, for processes, pages and the database."""

ROOT = Path(__file__).parent.parent

SLOW_S: Mapping[str, Mapping[str, float]] = {
    SQLITE: {
        "test_v0_clients": 92,
        "test_v1_agent_events": 79,
        "browser/test_approval": 70,
        "browser/test_outgoing": 61,
        "test_interruption": 55,
        "browser/test_streaming": 51,
        "browser/test_agent_states": 44,
        "test_schemathesis": 43,
        "browser/test_accessibility": 42,
        "browser/test_login": 40,
        "test_v0_lists": 39,
        "test_search": 36,
        "test_database_files": 36,
        "browser/test_hostile_pages": 34,
        "browser/test_drafts": 34,
        "test_v1_server": 33,
        "browser/test_list": 33,
        "browser/test_late_news": 32,
        "browser/test_first_visit": 28,
        "test_rendering": 28,
        "test_v1_agent_face": 28,
        "test_shutdown": 27,
        "test_configuration": 26,
        "browser/test_long_log": 25,
        "test_first_steps": 25,
        "test_hints": 24,
        "test_v0_packets": 23,
        "test_admin": 23,
        "test_upgrades": 23,
        "test_commands_across_processes": 22,
        "browser/test_keyboard": 21,
        "test_access": 21,
        "browser/test_palette": 20,
        "test_connections": 18,
        "browser/test_menu": 18,
        "test_v1_app_conversations": 16,
        "test_agent": 16,
        "test_password_line": 16,
        "test_webhooks": 16,
        "test_v1_runs": 15,
        "browser/test_list_place": 15,
    },
    SERVERS: {
        "test_v1_agent_events": 95,
        "test_v0_clients": 84,
        "test_idle": 71,
        "browser/test_streaming": 50,
        "test_v1_server": 50,
        "test_interruption": 49,
        "test_v1_runs": 37,
        "test_commands_across_processes": 32,
        "test_search": 31,
        "test_upgrades": 28,
        "browser/test_list": 28,
        "test_shutdown": 28,
        "browser/test_connection": 27,
        "test_v0_lists": 26,
        "test_agent": 23,
        "test_v1_socket": 23,
        "test_lost_commits": 23,
        "test_exhausted_database": 21,
        "test_webhooks": 21,
        "test_v1_app_conversations": 20,
        "test_web_settings": 19,
        "test_saves": 18,
        "test_replaced_databases": 17,
        "test_v1_app_events": 15,
        "test_manager_rounds": 15,
    },
}
"""Seconds that files take, as `make test` says at its end; round figures do."""

OTHER_S = {SQLITE: 4.0, SERVERS: 2.5}
"""So many seconds a file counts that is not among the slow ones."""


def divided(engines: str) -> list[list[str]]:
    """Divide all files of tests between the runs on these engines."""
    slow_s = {f"tests/{file}.py": seconds for file, seconds in SLOW_S[engines].items()}
    return shares(all_files(), RUNS[engines], slow_s, OTHER_S[engines])


def all_files() -> list[str]:
    """Return every file of tests, as seen from the root of the repository, in order."""
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))


def shares(files: Sequence[str], count: int, slow_s: Mapping[str, float], other_s: float) -> list[list[str]]:
    """Divide files into `count` shares of about the same length; each file keeps its place in the order.

    From the slowest on, each goes to the share that is the shortest so far.
    """
    lengths = [0.0] * count
    found: list[list[str]] = [[] for _ in range(count)]
    for file in sorted(files, key=lambda file: -slow_s.get(file, other_s)):
        shortest = lengths.index(min(lengths))
        lengths[shortest] += slow_s.get(file, other_s)
        found[shortest].append(file)
    return [sorted(share, key=files.index) for share in found]
