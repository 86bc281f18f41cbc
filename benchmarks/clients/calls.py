"""Single calls of a measured server, before and between what is measured."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

from benchmarks.job import ClientFailed
from benchmarks.server import Server

WAIT_S = 30


def post(running: Server, path: str, body: object) -> str:
    """Return the answer to a POST of JSON without blanks. Raise ClientFailed."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return _answer(Request(_url(running, path), method="POST", data=text.encode()))


def get(running: Server, path: str) -> str:
    """Return the answer to a GET. Raise ClientFailed."""
    return _answer(Request(_url(running, path)))


def _url(running: Server, path: str) -> str:
    return f"http://127.0.0.1:{running.port}{path}"


def _answer(request: Request) -> str:
    request.add_header("Content-Type", "application/json")
    try:
        with urlopen(request, timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except OSError as error:
        raise ClientFailed(f"{request.full_url}: {error}") from error
