"""Bare ASGI under the server's own uvicorn settings: what sockets and requests cost without an application.

The socket `/echo` sends each frame back; `/send/{n}` sends n prepared `event` frames and `replay_complete`.
Each frame that comes in on `/say` is sent to all sockets of `/hear`, and then acknowledged.
A request is read and answered with success, wherever it goes.
"""

from __future__ import annotations

from typing import Any

from benchmarks import event
from benchmarks.limits.serving import serve


def event_frame(seq: int) -> str:
    """Return a frame of the size that a native socket sends for the event."""
    return (
        f'{{"type":"event","seq":{seq},"id":"{seq:032x}","dialect":"v0","event_type":"run","kind":"tool_call",'
        f'"source":"agent","timestamp":"2026-01-01T00:00:00.000000Z","cause":null,"text":"{event.COMMAND}",'
        f'"event":{event.PAYLOAD}}}'
    )


PREPARED_MAX = 100_000
_prepared: list[str] = []
_hearers: set[Any] = set()
_SUCCESS = b'{"success":true}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_SUCCESS)).encode())]


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serve one socket or request."""
    if scope["type"] == "websocket":
        await _socket(scope, receive, send)
    else:
        await _request(receive, send)


async def _request(receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _SUCCESS})


async def _hear(receive: Any, send: Any) -> None:
    await send({"type": "websocket.send", "text": '{"type":"hello"}'})
    _hearers.add(send)
    while (await receive())["type"] != "websocket.disconnect":
        pass
    _hearers.discard(send)


async def _say(receive: Any, send: Any) -> None:
    await send({"type": "websocket.send", "text": '{"type":"hello"}'})
    while (message := await receive())["type"] != "websocket.disconnect":
        for hearer in list(_hearers):
            await hearer({"type": "websocket.send", "text": message["text"]})
        await send({"type": "websocket.send", "text": '{"type":"ack"}'})


async def _socket(scope: dict[str, Any], receive: Any, send: Any) -> None:
    _, name, *rest = scope["path"].split("/")
    prepared = _prepared[: int(rest[0])] if name == "send" else []
    await receive()
    await send({"type": "websocket.accept"})
    if name in ("hear", "say"):
        await (_hear if name == "hear" else _say)(receive, send)
        return
    for text in prepared:
        await send({"type": "websocket.send", "text": text})
    if prepared:
        await send({"type": "websocket.send", "text": '{"type":"replay_complete","through":-1}'})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message["text"]})


def main() -> None:
    """Serve on the port that the command line names."""
    _prepared.extend(event_frame(seq) for seq in range(PREPARED_MAX))
    serve(application)


if __name__ == "__main__":
    main()
