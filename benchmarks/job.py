"""What the clients of one measurement are to do and what they found, and the process that they run in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self, TypedDict, cast

from benchmarks import server

WAIT_S = 180


class ClientFailed(RuntimeError):
    """A measurement's clients did not get what they should; the text says what."""


class Question(NamedTuple):
    """A GET, or with a body a POST, and a text that every answer to it must hold."""

    port: int
    path: str
    expected: str
    body: str = ""
    token: str = ""
    """The API token of who asks, if it needs one."""


class Result(TypedDict):
    """What the clients found."""

    rate: float
    """Events per second; 0.0 where nothing was sent."""
    events: int
    latencies_ms: list[list[float]]
    """By question, how long each of its answers took; of talks, how long each first piece of an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to measure."""

    sort: str
    """`append` (to the native socket), `echo` (to a bare one), `replay` (of either), `open` (by Socket.IO);
    `audience` (of V1 sockets, the first address being that of who appends);
    by REST `post v0`, `post native`, and `post bare` to what only answers; `get`; `rename` what is locked;
    `talk` to agents; `join` V1 sockets, whose addresses the questions have;
    `ask` where questions are all there is; `ask for` a time."""
    port: int = 0
    more_ports: Sequence[int] = ()
    """Of servers beside that one, over which the senders are spread."""
    paths: Sequence[str] = ()
    """One address per client."""
    after: Sequence[int] = ()
    """By client, the seq of the last event that it has."""
    batch: int = 1
    """Events in one frame."""
    follows: bool = True
    seconds: float = 0.0
    """Length of the measurement; a replay ends by itself, and questions end it when all are answered."""
    events: int = 0
    """How many a replay, an opening or a join brings, or an audience is shown."""
    questions: Sequence[Question] = ()
    """What one more client asks in turns, while the others append or open."""
    times: int = 0
    """How often it asks each."""
    every_s: float = 0.0
    """How long it rests between its turns, or who appends to an audience between its events."""
    mutes: int = 0
    """How many more sockets of an audience never read."""

    def port_at(self, place: int) -> int:
        """Return the port of the server that the sender at this place asks."""
        ports = (self.port, *self.more_ports)
        return ports[place % len(ports)]

    def text(self) -> str:
        """Return it for the way to the process of the clients."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote."""
        members = json.loads(text)
        return cls(**members | {"questions": [Question(*each) for each in members["questions"]]})


def carry_out(job: Job) -> Result:
    """Let the clients do the job, in a process of their own. Raise ClientFailed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.client"],
        input=job.text(),
        capture_output=True,
        text=True,
        cwd=server.ROOT,
        check=False,
        timeout=WAIT_S,
    )
    if done.returncode:
        paths = [*job.paths, *(question.path for question in job.questions)]
        raise ClientFailed(f"{job.sort} on {paths[0]}: {done.stderr[-2000:]}")
    return cast(Result, json.loads(done.stdout))
