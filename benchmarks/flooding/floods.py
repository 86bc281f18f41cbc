"""What another user is answered while one floods the server with what it has to work for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from http.client import HTTPConnection
from pathlib import Path
from secrets import token_urlsafe

import psutil

from benchmarks import event, server
from benchmarks.clients import exchanges
from benchmarks.databases import TEMPLATE_ID, Database
from benchmarks.flooding.slow_proxy import SlowProxy
from benchmarks.flooding.work import CONVERSATIONS, FLOODS, SLOW_PROXY_NAME, Flooding
from benchmarks.job import ClientFailed, Job, Question, carry_out
from convserver import quotas

__all__ = ["BESIDE", "FLOODS", "IDLE", "QUESTIONS", "Floods", "key"]

IDLE, BESIDE = "idle", "flooded"
_APPENDED = json.dumps({"type": "event", "event": json.loads(event.PAYLOAD)})
QUESTIONS = {
    "get": ("/api/native/conversations/{}", '"last_seq":', ""),
    "append": ("/api/native/conversations/{}/events", '"ack"', _APPENDED),
}
"""By name an address, what stands in each answer, and what is posted, if anything is."""
SHORT, SEARCHED, REPLAYED = 20, 20_000, 3_000
"""Events of a conversation, of the one that is searched, and of the one that is replayed."""
LONG_PAYLOAD = json.dumps(json.loads(event.PAYLOAD) | {"more": "x" * 20_000}, separators=(",", ":"))
EVERY_S = 0.05
FLOOD_BEGINS_S = 10.0
RECOVERED_PERCENT, RECOVERED_WAIT_S = 20.0, 6.0
"""A server rests again that uses at most so much of one core."""
LOOK_S = 0.2
PREPARED_S = 120.0


def key(name: str, question: str, when: str) -> str:
    """Return the name of a measurement."""
    return f"{question} {name} {when}, p95 ms"


class Floods:
    """A database with two users for each flood: one who floods, and another one, who asks."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database, self._directory = database, directory
        self._tokens: dict[str, str] = {}
        self._environment: dict[str, str] = {}
        self._secret_key = token_urlsafe(64)

    @contextmanager
    def serving(self) -> Iterator[server.Server]:
        """Run the server in accounts mode; what it asks of git hosts goes by a proxy that never answers."""
        with SlowProxy() as proxy:
            environment = {
                "CONVSERVER_AUTH": "accounts",
                "CONVSERVER_ALLOWED_HOSTS": SLOW_PROXY_NAME,
                "SECRET_KEY": self._secret_key,
                "HTTPS_PROXY": proxy.url,
                **quotas.none(),  # a flood that is refused is none
            }
            self._environment = environment
            with server.convserver(self._database.url, self._directory, **environment) as running:
                yield running

    def prepare(self) -> None:
        """Make the users, their tokens and their conversations, and index what is searched."""
        users = [f"{role}-{name}" for name in FLOODS for role in ("flooder", "other")]
        with self.serving() as running:
            self._tokens = json.loads(self._manage(["benchmarks.accounts"], json.dumps(users)))
            template = {"id": TEMPLATE_ID}
            _ask(running.port, "POST", "/api/native/conversations", self._tokens[users[0]], template)
        for user in users:
            role, _, name = user.partition("-")
            count = FLOODS[name].owned if role == "flooder" else CONVERSATIONS
            self._database.fill(user, conversations=count, events=SHORT)
            self._database.give(user, user)
        for name, events, payload in (
            ("searched", SEARCHED, event.PAYLOAD),
            ("replayed", REPLAYED, LONG_PAYLOAD),
        ):
            self._database.fill(name, conversations=1, events=events, payload=payload)
            flood = next(each for each, flood in FLOODS.items() if flood.conversation == f"{name}-0")
            self._database.give(name, f"flooder-{flood}")
        self._manage(["convserver", "manage", "rebuild_search"])
        self._database.execute(*self._database.analysis(), "SELECT 1")

    def latencies_ms(
        self, name: str, running: server.Server, idle_s: float, flood_s: float
    ) -> Mapping[str, Sequence[float]]:
        """Return how many ms each answer took, by the keys of this flood. Raise ClientFailed."""
        questions = [
            Question(
                running.port, path.format(f"other-{name}-0"), expected, body, self._tokens[f"other-{name}"]
            )
            for path, expected, body in QUESTIONS.values()
        ]
        idle = carry_out(Job(sort="ask for", questions=questions, seconds=idle_s, every_s=EVERY_S))
        job = Job(sort="ask for", questions=questions, seconds=flood_s, every_s=EVERY_S)
        try:
            with self._flooding(name, running):
                beside = carry_out(job)
        finally:
            _recover(running, questions[0])
        return {
            key(name, question, when): answers
            for when, result in ((IDLE, idle), (BESIDE, beside))
            for question, answers in zip(QUESTIONS, result["latencies_ms"], strict=True)
        }

    @contextmanager
    def _flooding(self, name: str, running: server.Server) -> Iterator[None]:
        """Let a process flood the server. Raise ClientFailed if the server does not even know its user."""
        flooding = Flooding(name=name, port=running.port, token=self._tokens[f"flooder-{name}"])
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.flooding.flooder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=server.ROOT,
        )
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(asdict(flooding)) + "\n")
            process.stdin.flush()
            process.stdout.readline()  # it floods from here on
            yield
        finally:
            process.terminate()
            try:
                said, error = process.communicate(timeout=FLOOD_BEGINS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                said, error = process.communicate()
        require_a_flood(name, said, error)

    def _manage(self, module: Sequence[str], given: str = "") -> str:
        own = {
            **self._environment,
            "DATABASE_URL": self._database.url,
            "CONVSERVER_DATA_DIR": str(self._directory),
        }
        done = subprocess.run(
            [sys.executable, "-m", *module],
            input=given,
            capture_output=True,
            text=True,
            cwd=server.ROOT,
            env=os.environ | own,
            check=False,
            timeout=PREPARED_S,
        )
        if done.returncode:
            raise ClientFailed(f"{module}: {done.stderr[-2000:]}")
        return done.stdout


UNKNOWN = {"401", "403", "404", "405", "4401", "4403", "4404"}
"""Answers to somebody who is not known, or who asks for what is not there: these are no flood."""


def require_a_flood(name: str, said: str, error: str) -> None:
    """Raise ClientFailed if a flood broke off, or if the server knew nobody of it, by what it said last."""
    try:
        answers: dict[str, int] = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        raise ClientFailed(f"The flood of {name} broke off: {error[-2000:]}") from None
    if not answers or UNKNOWN & answers.keys():
        raise ClientFailed(f"The flood of {name} was none: {answers}")


def _recover(running: server.Server, question: Question) -> None:
    """Wait until the server rests and answers again; one that does not is ended, and so replaced."""
    give_up_at = time.monotonic() + RECOVERED_WAIT_S
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(running.pid)
        while time.monotonic() < give_up_at:
            if process.cpu_percent(interval=LOOK_S) <= RECOVERED_PERCENT:
                with suppress(OSError, ClientFailed):
                    _ask(running.port, "GET", question.path, question.token)
                    return
        process.kill()


def _ask(port: int, method: str, path: str, token: str, body: object = None) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=RECOVERED_WAIT_S)
    headers = dict(line.split(": ", 1) for line in exchanges.authorization(token).splitlines())
    connection.request(
        method,
        path,
        None if body is None else json.dumps(body),
        headers | {"Content-Type": "application/json"},
    )
    answer = connection.getresponse()
    text = answer.read(2000)
    connection.close()
    if answer.status >= 300:
        raise ClientFailed(f"{method} {path}: {answer.status} {text!r}")
