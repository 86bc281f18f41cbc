"""The ASGI application: every HTTP request, socket and lifespan enters here."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")

import asyncio
from typing import Any

import django

django.setup(set_prefix=False)

from django.db import connection

from conversations.engines import guards
from convserver.activity import NotedActivity
from convserver.api.bounded_bodies import BoundedBodies
from convserver.serving.caching import KeptByNobody
from convserver.serving.cancelled import AnsweredWhenCancelled
from convserver.serving.http import OneThreadHandler
from convserver.serving.late import LateApplication
from convserver.serving.measuring import MeasuredRequests, name_route
from sessions_app import astore, background
from sessions_app.identity.authentication import OwnOriginOnly
from sessions_app.identity.key_throttle import ThrottledKeys
from sessions_app.live.hub import hub
from sessions_app.loops.manager import close_manager, get_manager
from sessions_app.routing import router
from sessions_app.shell_commands import kept
from sessions_app.sockets.v0 import server

# The end waits this long for agents and statements: more than agents and tasks have to let go.
CLOSING_S = 25.0

http = LateApplication("convserver.serving.doors.application")
mcp = LateApplication("convserver.mcp.door.application")
# Probes are answered even while every thread for requests is busy, and import no other page.
probes = OneThreadHandler("probes", are_shared=False, urlconf="convserver.web.probe_urls")
# The metrics of a worker, which has no other page: with the credentials that a server asks for.
metrics = OwnOriginOnly(
    ThrottledKeys(OneThreadHandler("metrics", are_shared=False, urlconf="convserver.web.metrics_urls"))
)
PROBES = {"/alive", "/health", "/ready"}
MCP, METRICS = "/mcp", "/metrics"
WORKER_ANSWERS = b"A worker answers /alive, /health, /ready and /metrics.\n"


async def by_protocol(scope: Any, receive: Any, send: Any) -> None:
    """Pass a connection to the handler of its protocol."""
    match scope["type"]:
        case "http" if scope["path"].startswith(f"{server.PATH}/"):
            name_route(scope, "socket.io")
            await server.socketio_v0(scope, receive, send)
        case "http" if scope["path"] in PROBES:
            name_route(scope, scope["path"].removeprefix("/"))
            await probes(scope, receive, send)
        case "http" if scope["path"] == MCP:
            name_route(scope, "mcp")
            await mcp(scope, receive, send)
        case "http":
            await http(scope, receive, send)
        case "websocket":
            background.start()  # unless the lifespan has
            await router(scope, receive, send)
        case "lifespan":
            await lifespan(receive, send)


async def worker(scope: Any, receive: Any, send: Any) -> None:
    """Be a process without doors: run the manager and the background, and answer probes."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"] in PROBES:
        await probes(scope, receive, send)
    elif scope["type"] == "http" and scope["path"] == METRICS:
        await metrics(scope, receive, send)
    elif scope["type"] == "http":
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": WORKER_ANSWERS})


async def lifespan(receive: Any, send: Any) -> None:
    """Start with guards in place, the manager and the background; end with every lease released."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await astore.call(guards.require, connection)
                await hub().start()
                await get_manager().__aenter__()  # close_manager leaves it
                background.start()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        else:
            await send(await _closed())
            return


async def _closed() -> dict[str, str]:
    """End everything that the lifespan has started, and return the message that says how that went."""
    try:
        async with asyncio.timeout(CLOSING_S):
            # Doors first, so that nothing new begins.
            await server.close()
            await kept.close()
            await background.close()
            await close_manager()
    except TimeoutError:
        sentence = (
            f"The database has not answered for {CLOSING_S:.0f} s while the server was ending. What was "
            "under way may be stored or not; leases of agents expire by themselves. The process ends now."
        )
        return {"type": "lifespan.shutdown.failed", "message": sentence}
    return {"type": "lifespan.shutdown.complete"}


# From outside inwards: all requests are counted, also refused ones; an answer without a word on caches gets
# one; foreign origins and guessed keys are refused before any door is asked; bodies are admitted last, when
# their client may be known.
application = MeasuredRequests(
    AnsweredWhenCancelled(
        KeptByNobody(OwnOriginOnly(ThrottledKeys(NotedActivity(BoundedBodies(by_protocol)))))
    )
)
