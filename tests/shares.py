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
        "test_v0_clients": 50,
        "browser/test_agent_states": 46,
        "browser/test_approval": 44,
        "test_configuration": 38,
        "test_rendering": 38,
        "test_access": 38,
        "test_shutdown": 38,
        "browser/test_hostile_pages": 37,
        "test_database_files": 36,
        "browser/test_drafts": 36,
        "test_admin": 35,
        "browser/test_message_queue": 34,
        "browser/test_accessibility": 32,
        "browser/test_login": 29,
        "test_schemathesis": 28,
        "test_upgrades": 28,
        "test_interruption": 28,
        "test_replaced_databases": 27,
        "test_agent": 24,
        "test_v1_agent_face": 24,
        "browser/test_first_visit": 24,
        "browser/test_list": 24,
        "test_v1_runs": 23,
        "test_web_access": 23,
        "test_v1_agent_events": 22,
        "test_commands_across_processes": 22,
        "browser/test_late_news": 22,
        "test_private_files": 21,
        "test_v0_packets": 21,
        "test_search": 21,
        "test_quickstart": 20,
        "test_git_providers": 20,
        "test_hints": 20,
        "test_connections": 19,
        "test_v1_server": 19,
        "test_v1_socket": 18,
        "test_password_line": 18,
        "test_v1_starts": 18,
        "browser/test_long_log": 18,
        "browser/test_streaming": 17,
        "test_v1_app_events": 16,
        "test_memory": 16,
        "test_webhooks": 16,
        "test_web_settings": 15,
        "test_server_log": 15,
        "test_guards": 14,
        "browser/test_menu": 14,
        "test_schema": 13,
        "browser/test_connection": 13,
        "browser/test_list_place": 12,
        "test_v0_lists": 11,
        "browser/test_keyboard": 10,
        "browser/test_palette": 10,
        "browser/test_asking": 10,
    },
    SERVERS: {
        "test_idle": 71,
        "test_upgrades": 52,
        "test_v0_clients": 55,
        "test_v1_runs": 48,
        "test_interruption": 48,
        "test_commands_across_processes": 38,
        "browser/test_connection": 38,
        "test_agent": 38,
        "test_v1_agent_events": 35,
        "test_search": 35,
        "test_replaced_databases": 35,
        "test_guards": 14,
        "test_v0_lists": 20,
        "test_v1_socket": 28,
        "test_lost_commits": 28,
        "test_exhausted_database": 25,
        "test_webhooks": 25,
        "test_saves": 14,
        "test_v1_app_events": 18,
        "test_manager_rounds": 18,
        "test_v1_app_conversations": 14,
        "test_shutdown": 12,
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
