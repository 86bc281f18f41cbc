"""A server of models on loopback, with the faults that one can have."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A question that came."""

    method: str
    path: str
    key: str
    body: Any
    keys: tuple[str, ...] = ()
    """The keys in headers of other wires, too."""


class Answer(NamedTuple):
    """What is answered: a status and a JSON value, or text or bytes as they are; or a stream."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}
    stream: Iterable[str | threading.Event] | None = None
    """Server-sent events, one after the other; where an Event stands, the server waits for it."""
    is_cut: bool = False
    """Whether the connection breaks at the end of the stream."""


Answers = Callable[[Asked], Answer]

DONE = "data: [DONE]\n\n"


def completion(
    pieces: Sequence[str | threading.Event], *, reasoning: Sequence[str] = (), usage: tuple[int, int] = (7, 3)
) -> Answer:
    """Return an answer as OpenAI's chat completions stream it, a chunk for each piece."""
    return Answer(
        stream=[
            *(chunk({"reasoning_content": each}) for each in reasoning),
            *(each if isinstance(each, threading.Event) else chunk({"content": each}) for each in pieces),
            chunk({}, finish_reason="stop"),
            used(*usage),
            DONE,
        ]
    )


def calling(*calls: tuple[str, object], text: str = "") -> Answer:
    """Return an answer that wants these tools, each a name with arguments, or their text."""
    wanted = [
        {
            "index": index,
            "id": f"c{index}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
            },
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    return Answer(
        stream=[
            *([chunk({"content": text})] if text else []),
            *(chunk({"tool_calls": [each]}) for each in wanted),
            chunk({}, finish_reason="tool_calls"),
            used(7, 3),
            DONE,
        ]
    )


def cut_completion(pieces: Sequence[str]) -> Answer:
    """Return the beginning of an answer, after which the connection breaks."""
    return Answer(stream=[chunk({"content": each}) for each in pieces], is_cut=True)


def chunk(delta: dict[str, Any], *, finish_reason: str | None = None) -> str:
    return _sent({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def used(prompt_tokens: int, completion_tokens: int) -> str:
    """Return the chunk that says what a chat completion used."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return _sent({"choices": [], "usage": {**usage, "total_tokens": sum(usage.values())}})


def _sent(fields: dict[str, Any]) -> str:
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "gpt-x"}
    return f"data: {json.dumps({**base, **fields})}\n\n"


@contextmanager
def model_server(answers: Answers) -> Iterator[tuple[str, list[Asked]]]:
    """Serve these answers; yield the base URL, and what is asked meanwhile."""
    asked: list[Asked] = []

    ending = threading.Event()

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
            key = self.headers.get("authorization", "")
            found = (self.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key"))
            keys = tuple(filter(None, [key.removeprefix("Bearer "), *found]))
            question = Asked(self.command, self.path, key, body, keys)
            asked.append(question)
            answer = answers(question)
            if answer.stream is not None:
                self._stream(answer)
                return
            text = answer.body if isinstance(answer.body, (str, bytes)) else json.dumps(answer.body)
            body = text if isinstance(text, bytes) else text.encode()
            self.send_response(answer.status)
            for name, value in {**answer.headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, answer: Answer) -> None:
            self.protocol_version = "HTTP/1.1"
            self.send_response(answer.status)
            framing = {"transfer-encoding": "chunked", "connection": "close"}
            for name, value in {"content-type": "text/event-stream", **answer.headers, **framing}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in answer.stream or ():
                    if isinstance(part, threading.Event):
                        while not (part.wait(0.05) or ending.is_set()):
                            pass
                        continue
                    self.wfile.write(f"{len(part.encode()):x}\r\n{part}\r\n".encode())
                    self.wfile.flush()
                if not answer.is_cut:
                    self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client has gone
                pass
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()
