"""What all clients of a round share: where they ask, what they log, and when one of them was served last."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from faults.checker.history import Did, HistoryFile, Record
from faults.suite.stored import MADE_PREFIX, SAID

REQUEST_WAIT_S = 60.0
AGAIN_S = 0.05
REPEATED = 0.7
"""This part of what was refused is sent again; the rest is left, and must not be stored."""
REFUSALS = {"unavailable", "busy", "too_many_waiting", "too_many_requests"}
"""Codes of answers that promise that nothing was stored."""
UNKNOWN = "outcome_unknown"
PROMISES_NOTHING = ("may be stored or not", "not known whether", "it is stored if that file")
"""Words of the answers of wires without codes that promise nothing either."""
WITH_SECRET = 3
"""Each so manieth text holds the secret of the installation."""


@dataclass(slots=True)
class Service:
    """When a client was served last."""

    acknowledged: int = 0
    served: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each acknowledgement."""
    begun: int = 0
    """How many tries have begun: an acknowledgement of an earlier one says nothing about service now."""
    waits_for: int = 0

    def note(self, number: int) -> None:
        """Take an acknowledgement of the try with this number."""
        self.acknowledged += 1
        if number >= self.waits_for:
            self.served.set()


class Stage:
    """One round's: its addresses, its history, its chance, and its end."""

    def __init__(
        self, ports: Sequence[int], history: HistoryFile, rng: random.Random, *, secret: str
    ) -> None:
        self.prefix = uuid4().hex[:8]
        """With this begins the id of every conversation that a client chooses."""
        self.creations = f"{MADE_PREFIX}{self.prefix}"
        """With this, the title of every conversation whose id the server chooses."""
        self.service = Service()
        self.rng = rng
        self.secret = secret
        self.is_over = False
        self._ports = ports
        self._history = history
        self._turn = 0
        self.http = httpx.AsyncClient(
            timeout=REQUEST_WAIT_S, trust_env=False, limits=httpx.Limits(max_connections=None)
        )

    def url(self, scheme: str = "http") -> str:
        """Return the address of the next server."""
        self._turn += 1
        return f"{scheme}://127.0.0.1:{self._ports[self._turn % len(self._ports)]}"

    def new_id(self) -> str:
        """Return the id of a new conversation, which any wire takes."""
        return f"{self.prefix}{uuid4().hex[8:]}"

    def new_key(self) -> str:
        """Return a key under which one conversation is created; it is its title as well."""
        return f"{self.creations}-{uuid4().hex[:12]}"

    def new_word(self) -> str:
        """Return a word by which a message is known whose id the server chooses."""
        return f"{SAID}{uuid4().hex}"

    def text(self, key: str) -> str:
        """Return what a client says under a key: the same each time, and of some keys with the secret."""
        return f"{key} {self.secret}" if int(key[-4:], 16) % WITH_SECRET == 0 else key

    # The history

    def add(self, did: Did, talk: str, key: str, seq: int = -1, text: str = "") -> None:
        """Log what a client did, or was told."""
        self._history.add(Record(did, talk, key, seq, text))

    def begin(self, talk: str, key: str) -> int:
        """Log that a client sends something now; return the number of the try."""
        self.add(Did.INVOKE, talk, key)
        self.service.begun += 1
        return self.service.begun

    def acknowledge(self, talk: str, key: str, seq: int, number: int) -> None:
        """Log that a try was acknowledged; -1 for a place that was not said."""
        self.add(Did.ACK, talk, key, seq)
        self.service.note(number)

    def refuse(self, talk: str, key: str, promise: Did, text: str) -> None:
        """Log that a try was answered with an error."""
        self.add(promise, talk, key, -1, text if promise is Did.UNEXPECTED else "")

    def look_through(self, talk: str, text: str) -> None:
        """Log if what a client was sent holds the secret."""
        if self.secret in text:
            self.add(Did.LEAKED, talk, "", -1, text[:200])


class Client:
    """The clients of one door."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def pause(self, least_s: float = AGAIN_S, most_s: float = AGAIN_S) -> None:
        """Wait a little, as a client does between two requests."""
        await asyncio.sleep(self.stage.rng.uniform(least_s, most_s))


def promise_of(code: object, text: str) -> Did:
    """Return what an error promises, by its code on the native wire, by its words on the others."""
    if code == UNKNOWN or any(words in text for words in PROMISES_NOTHING):
        return Did.UNKNOWN
    return Did.REFUSED if code in REFUSALS else Did.UNEXPECTED


def promise_of_answer(answer: httpx.Response) -> Did:
    """Return what an answer by REST promises that is no success."""
    code = json_of(answer).get("code")
    if code is None and answer.status_code in (429, 503):
        code = "unavailable"
    return promise_of(code, answer.text)


def words_of(answer: httpx.Response) -> str:
    """Return the beginning of an answer, for a sentence about it."""
    return f"{answer.status_code} {answer.text[:200]}"


def json_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the object that an answer is; an empty one for any other."""
    with suppress(ValueError):
        body = answer.json()
        if isinstance(body, dict):
            return body
    return {}


def word_in(text: object) -> str:
    """Return the word that a client's message begins with; an empty one for any other text."""
    return str(text).partition(" ")[0] if str(text).startswith(SAID) else ""
