"""Clients of REST, each on a connection that it keeps: those that append, and the one that asks."""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks import event
from benchmarks.clients import exchanges
from benchmarks.clients.connections import Connection, Sender, WrongAnswer, require_same
from benchmarks.clients.exchanges import Answer
from benchmarks.job import Job, Question

_PAYLOAD = event.PAYLOAD.encode()
_V0_BODY = json.dumps({"action": "run", "args": {"command": event.COMMAND}}).encode()
"""What the door stores of it is of the size of `event.PAYLOAD`."""


class _Requester(Sender):
    """Sends a request, waits for its answer, sends the next one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready.set()

    def take(self, data: bytes) -> None:
        self.received += data
        for answer in exchanges.answers(self.received):
            _require_ok(answer)
            self.answered(answer.body)
        if self.is_complete():
            self.complete.set()


class Poster(_Requester):
    """Posts one event, waits for the answer, posts the next one."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__()
        self._after = job.after[place]
        self._head = exchanges.head("POST", job.paths[place], job.port)
        self._door = job.sort.removeprefix("post ")

    def message(self, sent_id: str) -> bytes:
        if self._door == "v0":
            return exchanges.with_body(self._head, _V0_BODY)
        body = b'{"type":"event","id":"' + sent_id.encode() + b'","event":' + _PAYLOAD + b"}"
        return exchanges.with_body(self._head, body)

    def check(self) -> None:
        """Raise WrongAnswer unless each was answered as its door promises."""
        answers = [json.loads(text) for text in self.answers]
        if self._door == "native":
            if [answer["id"] for answer in answers] != self.sent:
                raise WrongAnswer("The answers are not those to the frames that were sent, in their order.")
            expected = list(range(self._after + 1, self._after + 1 + len(self.sent)))
            require_same("acks", [answer["seq"] for answer in answers], expected)
        elif any(answer != {"success": True} for answer in answers):
            raise WrongAnswer(f"Not every event was taken: {answers}")


class Getter(_Requester):
    """Gets one address, waits for the answer, gets it again."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__()
        self._request = exchanges.get(job.paths[place], job.port)

    def message(self, sent_id: str) -> bytes:
        return self._request

    def check(self) -> None:
        """Raise WrongAnswer unless each answer has something in it."""
        if not all(len(json.loads(text)) for text in self.answers[:1]):
            raise WrongAnswer(f"Nothing was read: {self.answers[0]!r}")


TOLD_WITHIN_S = 16.0
"""Three times the bound on a wait (for a place, for the row's queue and for the row), and a second more."""


class Renamer(Connection):
    """Renames what is locked, is told to try again, and does so at once: it waits all the time."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__()
        self.waits_ms: list[float] = []
        """How long each answer took."""
        head = exchanges.head("PATCH", job.paths[place], job.port)
        self._request = exchanges.with_body(head, b'{"title":"new"}')
        self._asked_at = 0.0

    def begin(self) -> None:
        """Send the first, and another after every answer."""
        self._asked_at = time.perf_counter()
        self.transport.write(self._request)

    def take(self, data: bytes) -> None:
        self.received += data
        for answer in exchanges.answers(self.received):
            if answer.status != 503:
                raise WrongAnswer(f"{answer.status} instead of 503: {answer.body[:1000]!r}")
            self.waits_ms.append((time.perf_counter() - self._asked_at) * 1000)
            self.begin()

    def check(self) -> None:
        """Raise WrongAnswer if it still waits for its first answer after TOLD_WITHIN_S."""
        if not self.waits_ms and time.perf_counter() - self._asked_at > TOLD_WITHIN_S:
            raise WrongAnswer(f"A writer was told nothing for {TOLD_WITHIN_S:.0f} s.")


class Asker(Connection):
    """Asks one question again and again, as often as it is told to."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.latencies_ms: list[float] = []
        if question.body:
            head = exchanges.head("POST", question.path, question.port, question.token)
            self._request = exchanges.with_body(head, question.body.encode())
        else:
            self._request = exchanges.get(question.path, question.port, question.token)
        self._expected = question.expected.encode()
        self._answers: list[bytes] = []
        self._asked_at = 0.0
        self._is_answered = asyncio.Event()

    async def ask(self) -> None:
        """Ask once and return when the answer is there."""
        self._is_answered.clear()
        self._asked_at = time.perf_counter()
        self.transport.write(self._request)
        await self._is_answered.wait()

    async def ask_until(self, end: float, *, every_s: float, patience_s: float) -> None:
        """Ask until that moment of `perf_counter`; the last answer may take so much longer, and counts."""
        while time.perf_counter() < end:
            try:
                await asyncio.wait_for(self.ask(), end - time.perf_counter() + patience_s)
            except TimeoutError:
                self.latencies_ms.append((time.perf_counter() - self._asked_at) * 1000)
                return
            await asyncio.sleep(every_s)

    def take(self, data: bytes) -> None:
        self.received += data
        for answer in exchanges.answers(self.received):
            self.latencies_ms.append((time.perf_counter() - self._asked_at) * 1000)
            _require_ok(answer)
            self._answers.append(answer.body)
            self._is_answered.set()

    def check(self) -> None:
        """Raise WrongAnswer unless every answer holds what it must."""
        for body in self._answers:
            if self._expected not in body:
                raise WrongAnswer(f"There is no {self._expected!r} in {body[:1000]!r}")


def _require_ok(answer: Answer) -> None:
    if answer.status != 200:
        raise WrongAnswer(f"{answer.status} {answer.body[:1000]!r}")
