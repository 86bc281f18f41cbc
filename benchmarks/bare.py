"""Bare ASGI sockets under the server's own uvicorn settings: what a socket costs without an application.

`/echo` sends each frame back; `/send/{n}` sends n prepared `event` frames and `replay_complete`.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

from benchmarks import event
from convserver.configuration import MESSAGE_MAX_BYTES


def event_frame(seq: int) -> str:
    """Return a frame of the size that a native socket sends for the event."""
    return (
        f'{{"type":"event","seq":{seq},"id":"{seq:032x}","dialect":"v0","event_type":"run","kind":"tool_call",'
        f'"source":"agent","timestamp":"2026-01-01T00:00:00.000000Z","cause":null,"text":"{event.COMMAND}",'
        f'"event":{event.PAYLOAD}}}'
    )


PREPARED_MAX = 100_000
_prepared: list[str] = []


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serve one socket."""
    if scope["type"] != "websocket":
        return
    _, name, *rest = scope["path"].split("/")
    prepared = _prepared[: int(rest[0])] if name == "send" else []
    await receive()
    await send({"type": "websocket.accept"})
    for text in prepared:
        await send({"type": "websocket.send", "text": text})
    if prepared:
        await send({"type": "websocket.send", "text": '{"type":"replay_complete","through":-1}'})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message["text"]})


def main() -> None:
    """Serve on the port that the command line names."""
    _prepared.extend(event_frame(seq) for seq in range(PREPARED_MAX))
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        ws="websockets-sansio",
        ws_max_size=MESSAGE_MAX_BYTES,
        ws_per_message_deflate=False,
        access_log=False,
        log_level="warning",
        lifespan="off",
    )


if __name__ == "__main__":
    main()
