"""A server of models on loopback, with the faults that one can have."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A question that came."""

    method: str
    path: str
    key: str
    body: Any


class Answer(NamedTuple):
    """What is answered: a status and a JSON value, or text as it is."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}


Answers = Callable[[Asked], Answer]


@contextmanager
def model_server(answers: Answers) -> Iterator[tuple[str, list[Asked]]]:
    """Serve these answers; yield the base URL, and what is asked meanwhile."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

        def _answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            question = Asked(self.command, self.path, self.headers.get("authorization", ""), body)
            asked.append(question)
            answer = answers(question)
            text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
            self.send_response(answer.status)
            for name, value in {**answer.headers, "content-length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
