"""The first page of the list of conversations, where there are few and where there are many."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

from benchmarks import server
from benchmarks.databases import REPOSITORY, TEMPLATE_ID, Database
from benchmarks.job import ClientFailed, Job, Question, carry_out

FEW, MANY = 1_000, 100_000
"""Conversations of the one owner."""
LIMIT = 20
START_WAIT_S = 30

_PAGE = f"/api/conversations?limit={LIMIT}"
_NEXT = '"next_page_id":"'
PAGES = {
    "list": (_PAGE, _NEXT),
    "list by repository": (f"{_PAGE}&selected_repository={quote(REPOSITORY + '0', safe='')}", _NEXT),
    "native list": (f"/api/native/conversations?limit={LIMIT}", _NEXT),
    "shown list": ("/rows", "page_id="),
}
"""By name, the address of a first page and what stands in it; each has a next one."""


class Lists:
    """Two servers, each with a database of its own: else the few would be among the many."""

    def __init__(self, databases: Mapping[int, Database], directory: Path) -> None:
        self._databases = databases
        self._directory = directory

    def prepare(self) -> None:
        """Let the servers make the tables, a conversation and its loop, and fill the rest."""
        for count, database in self._databases.items():
            with server.convserver(database.url, self._directory) as running:
                _make_template(running.port)
            database.fill_list(count - 1)

    def run(self, times: int) -> dict[str, list[float]]:
        """Return by page and count of conversations, as `list at 1000`, how many ms each answer took.

        All are asked in turns, so that they can be compared. Raise ClientFailed or NotServing.
        """
        questions: dict[str, Question] = {}
        with ExitStack() as stack:
            for count, database in self._databases.items():
                running = stack.enter_context(server.convserver(database.url, self._directory))
                for name, (path, expected) in PAGES.items():
                    questions[f"{name} at {count}"] = Question(running.port, path, expected)
            result = carry_out(Job(sort="ask", questions=list(questions.values()), times=times))
        return dict(zip(questions, result["latencies_ms"], strict=True))


def _make_template(port: int) -> None:
    """Join the template, append to it for a moment, and start its loop. Raise ClientFailed."""
    path = f"/ws/conversations/{TEMPLATE_ID}?after=-1"
    carry_out(Job(sort="append", port=port, paths=[path], after=[-1], seconds=0.1))
    url = f"http://127.0.0.1:{port}/api/conversations/{TEMPLATE_ID}/start"
    try:
        with urlopen(Request(url, method="POST", data=b"{}"), timeout=START_WAIT_S):
            pass
    except OSError as error:
        raise ClientFailed(f"{url}: {error}") from error
