"""Bare ASGI under the server's own uvicorn settings that answers each read with the rows of one statement.

The statement is executed through a pool like the server's, in one switch to a thread. The port comes by the
command line, the SQL by address as JSON by stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from psycopg_pool import ConnectionPool

from benchmarks.limits.serving import serve

THREADS = 4
"""As many as the server's readers."""
POOL_MIN, POOL_MAX = 1, 40

Fetch = Callable[[str], list[Any]]


def from_postgresql(url: str) -> Fetch:
    """Return what fetches the rows of a statement, with the settings of the server's connections."""
    settings = {"autocommit": True, "prepare_threshold": None}
    pool = ConnectionPool(url, min_size=POOL_MIN, max_size=POOL_MAX, kwargs=settings, open=True)

    def fetch(sql: str) -> list[Any]:
        with pool.connection() as connection:
            return connection.execute(sql.encode()).fetchall()

    return fetch


def from_sqlite(url: str) -> Fetch:
    """Return what fetches the rows of a statement, on the thread's own connection."""
    here = threading.local()

    def fetch(sql: str) -> list[Any]:
        if not hasattr(here, "connection"):
            here.connection = sqlite3.connect(urlsplit(url).path, isolation_level=None)
            here.connection.create_function("regexp", 2, _is_match, deterministic=True)
        found: list[Any] = here.connection.execute(sql).fetchall()
        return found

    return fetch


def _is_match(pattern: str, value: str | None) -> bool:
    """Be SQLite's REGEXP, as the server's connections have it."""
    return value is not None and re.search(pattern, value) is not None


class Application:
    """Answers GET of the known addresses."""

    def __init__(self, fetch: Fetch, statements: dict[str, str]) -> None:
        self._fetch, self._statements = fetch, statements
        self._threads = ThreadPoolExecutor(THREADS)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        await receive()
        query = scope["query_string"].decode()
        sql = self._statements[f"{scope['path']}?{query}" if query else scope["path"]]
        rows = await asyncio.get_running_loop().run_in_executor(self._threads, self._fetch, sql)
        body = json.dumps(rows, default=str).encode()
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve on the port that the command line names."""
    url = os.environ["DATABASE_URL"]
    fetch = from_postgresql(url) if url.startswith("postgres") else from_sqlite(url)
    serve(Application(fetch, json.load(sys.stdin)))


if __name__ == "__main__":
    main()
