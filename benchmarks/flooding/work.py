"""The floods: what one user sends, over how many connections, as fast as it is taken."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, urlencode

from benchmarks import event
from benchmarks.clients import exchanges, frames
from benchmarks.clients.connections import new_id

SLOW_PROXY_NAME = "git.benchmark.invalid"
"""A host without an address: only the proxy could know it."""
BATCH = 500
HUGE_STRINGS, HUGE_BYTES = 49_000, 9 * 1024 * 1024
SECRETS = 1_000
MEMBERS = 1_250_000
LIST_ITEMS = 7_950_000
SOCKETS_OPEN = 1_500
CONVERSATIONS, MANY_CONVERSATIONS = 4, 200
"""What a user has, and one whose flood is about many conversations at once."""
BODY_BYTES = 8 * 1024 * 1024
_CHUNK = 100
"""Frames that are written at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flooding:
    """Who floods which server."""

    name: str
    port: int
    token: str

    @property
    def conversations(self) -> list[str]:
        """The public ids of what this user has."""
        return [f"flooder-{self.name}-{n}" for n in range(FLOODS[self.name].owned)]


Requests = Callable[[Flooding, str], Iterator[bytes]]
"""Yields what one connection sends, for a conversation: whole requests, or frames of a socket."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flood:
    """What is sent and how."""

    title: str
    clients: int
    """Connections that send at once, or that open sockets."""
    requests: Requests | None = None
    """By REST, each after the answer to the last one."""
    frames: Requests | None = None
    """By native sockets, as fast as they are taken; none where the sockets are only opened and read."""
    conversation: str = ""
    """The one conversation that all are about; else each client has one of the user's own."""
    secrets: int = 0
    """Secrets of that conversation, as many as the server takes."""
    is_from_many: bool = False
    """Each client has an address of its own."""
    owned: int = CONVERSATIONS
    """So many conversations this user has."""
    keeps: int = 0
    """So many sockets are kept open; others are closed when they were replayed."""


def _events(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    payload = event.PAYLOAD.encode()
    while True:
        yield b"".join(
            frames.text_frame(b'{"type":"event","id":"' + new_id().encode() + b'","event":' + payload + b"}")
            for _ in range(_CHUNK)
        )


def _members(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    members = b",".join(b'"m%07d":1' % n for n in range(MEMBERS))
    frame = frames.text_frame(b'{"type":"event","event":{"action":"run","args":{' + members + b"}}}")
    while True:
        yield frame


def _batches(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    payload = event.PAYLOAD.encode()
    while True:
        items = b",".join(
            b'{"id":"' + new_id().encode() + b'","event":' + payload + b"}" for _ in range(BATCH)
        )
        yield _posted(flooding, conversation, b'{"type":"events","events":[' + items + b"]}")


def _huge(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    size = HUGE_BYTES // HUGE_STRINGS - 3
    strings = json.dumps([random.randbytes(size // 2).hex() for _ in range(HUGE_STRINGS)])
    body = f'{{"type":"event","event":{{"action":"run","args":{{"command":"x","all":{strings}}}}}}}'.encode()
    while True:
        yield _posted(flooding, conversation, body)


def _lists(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    body = b'{"type":"events","events":[' + b",".join([b"1"] * LIST_ITEMS) + b"]}"
    while True:
        yield _posted(flooding, conversation, body)


def _bodies(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    request = _posted(flooding, conversation, b'{"type":"event","event":"' + b"x" * BODY_BYTES + b'"}')
    while True:
        yield request


def _labels(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    head = exchanges.head("POST", "/api/native/batch", flooding.port, flooding.token)
    while True:
        asked = {"action": "label", "ids": flooding.conversations, "label": f"work:{new_id()}"}
        yield exchanges.with_body(head, json.dumps(asked).encode())


def _listings(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    while True:
        yield exchanges.get("/api/native/conversations?limit=100", flooding.port, flooding.token)


def _searches(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    query = urlencode({"q": 'workspace NOT "filler word"'}, quote_via=quote)
    while True:
        yield exchanges.get(f"/api/native/search?{query}", flooding.port, flooding.token)


def _log_ins(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    token = "c" * 32
    head = exchanges.head("POST", "/ui/login", flooding.port, kind="application/x-www-form-urlencoded")
    head = head.replace(b"\r\n", f"\r\nCookie: csrftoken={token}\r\n".encode(), 1)
    while True:
        form = {"csrfmiddlewaretoken": token, "username": f"flooder-{flooding.name}", "password": new_id()}
        yield exchanges.with_body(head, urlencode(form).encode())


def _git_hosts(flooding: Flooding, conversation: str) -> Iterator[bytes]:
    head = exchanges.head("POST", "/api/add-git-providers", flooding.port, flooding.token)
    while True:
        token = {"token": new_id(), "host": SLOW_PROXY_NAME}
        yield exchanges.with_body(head, json.dumps({"provider_tokens": {"gitlab": token}}).encode())


def _posted(flooding: Flooding, conversation: str, body: bytes) -> bytes:
    path = f"/api/native/conversations/{conversation}/events"
    return exchanges.with_body(exchanges.head("POST", path, flooding.port, flooding.token), body)


_Rest = partial(Flood, frames=None)
_Socket = partial(Flood, requests=None)

FLOODS = {
    "events-1": _Socket(title="events on one socket", clients=1, frames=_events),
    "events-4": _Socket(title="events on four sockets", clients=4, frames=_events),
    "batches": _Rest(title=f"batches of {BATCH} by REST", clients=8, requests=_batches),
    "huge": _Rest(title="events of 9 MiB beside 1,000 secrets", clients=1, requests=_huge, secrets=SECRETS),
    "members": _Socket(title="frames of 1,250,000 members", clients=1, frames=_members),
    "lists": _Rest(title="refused lists of 15.9 MB, 8 at once", clients=8, requests=_lists),
    "bodies": _Rest(title="refused bodies of 8 MiB, 16 at once", clients=16, requests=_bodies),
    "labels": _Rest(
        title=f"labels of {MANY_CONVERSATIONS} conversations, 8 at once",
        clients=8,
        requests=_labels,
        owned=MANY_CONVERSATIONS,
    ),
    "listings": _Rest(
        title="lists of 100 conversations, 32 at once",
        clients=32,
        requests=_listings,
        owned=MANY_CONVERSATIONS,
    ),
    "sockets": _Socket(title="joins of new conversations, 1,500 kept", clients=20, keeps=SOCKETS_OPEN),
    "searches": _Rest(
        title="searches of common words, 32 at once",
        clients=32,
        requests=_searches,
        conversation="searched-0",
    ),
    "replays": _Socket(title="replays of 60 MB, 20 sockets", clients=20, conversation="replayed-0"),
    "log-ins": _Rest(title="wrong log-ins, 50 at once", clients=50, requests=_log_ins, is_from_many=True),
    "git": _Rest(title="calls to a slow git host, 40 at once", clients=40, requests=_git_hosts),
}
"""By name."""
