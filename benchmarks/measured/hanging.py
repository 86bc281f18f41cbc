"""What others are answered while an agent's step hangs, as a model that does not answer makes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import server
from benchmarks.clients import calls
from benchmarks.databases import Database
from benchmarks.job import ClientFailed, Job, Question, carry_out

if TYPE_CHECKING:  # the server has Django set up, the measurement has not
    from sessions_app.agents.base import Turn

QUESTIONS = {
    "search": ("{}/events/search?limit=100", '"items":['),
    "get": ("{}", '"execution_status":'),
    "health": ("/health", "OK"),
    "list": ("/api/conversations?limit=20", '"results":['),
}
"""By name, an address, in which the conversation's own may stand, and what stands in each answer."""
_STATUS = '"execution_status":"running"'


class HangingAgent:
    """Plays one step that does not end before its server does, and says nothing."""

    async def play(self, turn: Turn) -> None:
        """Hang."""
        await asyncio.Event().wait()

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Answer nothing."""
        return ""


def latencies_ms(database: Database, directory: Path, times: int) -> dict[str, list[float]]:
    """Return how many ms each answer took, by question, as `search idle` and `search beside a hanging step`.

    Raise ClientFailed if the step was over before the last answer.
    """
    found: dict[str, list[float]] = {}
    agent = f"{__name__}.{HangingAgent.__name__}"
    with server.convserver(database.url, directory, CONVSERVER_AGENT=agent) as running:
        body = {"agent": {"llm": {"model": "none"}}, "workspace": {"working_dir": "."}}
        public_id = json.loads(calls.post(running, "/agent/api/conversations", body))["id"]
        path = f"/agent/api/conversations/{public_id}"
        questions = [
            Question(running.port, address.format(path), expected) for address, expected in QUESTIONS.values()
        ]
        job = Job(sort="ask", questions=questions, times=times)
        idle = carry_out(job)["latencies_ms"]
        said = {"role": "user", "content": [{"type": "text", "text": "Hang"}], "run": True}
        calls.post(running, f"{path}/events", said)
        beside = carry_out(job)["latencies_ms"]
        if _STATUS not in calls.get(running, path).replace(" ", ""):
            raise ClientFailed("The step was over before all questions were answered.")
    for name, before, during in zip(QUESTIONS, idle, beside, strict=True):
        found[f"{name} idle"], found[f"{name} beside a hanging step"] = before, during
    return found
