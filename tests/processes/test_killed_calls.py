"""kill -9 at every point of a tool call: nothing runs twice by accident, and every turn goes on or asks."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User

from conversations.dialects import v1
from conversations.events import Kind
from conversations.log import writes
from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from sessions_app.loops import decisions, runs
from sessions_app.models import AgentLoop, AgentLoopQuerySet, ExecutionStatus, UnfinishedAnswer, UnknownAnswer
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.people.held_agent import (
    AFTER_START,
    BEFORE_RESULT,
    IN_MODEL,
    IN_TOOL,
    POINTS,
    Hold,
    held_file,
)
from tests.support.people.model_talks import KEY, told
from tests.support.servers.model_server import Answer, Asked, calling, chunk, completion, model_server
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.no_second_try

ROOT = Path(__file__).parents[2]
AGENT = "tests.support.people.held_agent.HeldAgent"
CALLS = 2
"""How often each model calls its tool, before it says END."""
END = "That is all."
WITHIN_S = 300.0
"""For what needs no bound."""
SWEEPS_OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2}
"""What another process has stored in SQLite is found by a sweep alone."""
WAITING = ExecutionStatus.WAITING_FOR_CONFIRMATION


class Talk(NamedTuple):
    """A conversation, and where its server is killed."""

    ref: ConversationRef
    hold: Hold
    tool: str

    @property
    def is_unknown(self) -> bool:
        """Whether nobody can know what became of the call."""
        return self.tool == "count" and self.hold.point in (AFTER_START, IN_TOOL, BEFORE_RESULT)


class Talks:
    """The conversations of one server that is killed, and the model that all of them have."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.all: dict[str, Talk] = {}

    def begin(self, user: User, chance: random.Random, points: Sequence[str]) -> None:
        """Ask something in a conversation of either wire for each point."""
        for point in points:
            name = f"{self.directory.name}-{len(self.all)}"
            version = chance.choice(list(Version))
            ref = creation.create(user, conversation_id=name, version=version, title="A talk")
            hold = Hold(point, chance.randrange(CALLS))
            self.all[name] = Talk(ref, hold, chance.choice(["count", "count", "count_again"]))
            hold.write(self.directory, name)
            _ask(ref, f"This is {name}.")

    def answer(self, asked: Asked) -> Answer:
        """Answer as the model: with a call, or the end; at its point, with the beginning of either."""
        name = re.search(rf"This is ({self.directory.name}-\d+)\.", json.dumps(asked.body["messages"]))
        if name is None:
            return completion(["A title"])
        talk = self.all[name[1]]
        number = sum(role == "tool" for role, _ in told(asked))
        held = held_file(self.directory, name[1])
        if talk.hold == (IN_MODEL, number) and not held.exists():
            return Answer(stream=_unfinished(held))
        if number >= CALLS:
            return completion([END])
        hold = str(held) if talk.hold == (IN_TOOL, number) else ""
        return calling((talk.tool, {"number": number, "held": hold}))

    @property
    def are_held(self) -> bool:
        """Whether all have come to their points, and readers have seen what the models began to say."""
        in_model = [talk.ref.pk for talk in self.all.values() if talk.hold.point == IN_MODEL]
        shown = UnfinishedAnswer.objects.filter(conversation__in=in_model)
        are_there = all(held_file(self.directory, name).exists() for name in self.all)
        return are_there and shown.count() == len(in_model)

    @property
    def are_settled(self) -> bool:
        """Whether all turns are over or wait for a person."""
        return not self._with_turns().exclude(execution_status=WAITING, decision=None).exists()

    @property
    def are_over(self) -> bool:
        return not self._with_turns().exists()

    def waiting(self) -> set[str]:
        """Those whose turns wait for a person."""
        waiting = self._with_turns().undecided()
        return set(waiting.values_list("conversation__public_id", flat=True))

    def _with_turns(self) -> AgentLoopQuerySet:
        pks = [talk.ref.pk for talk in self.all.values()]
        return AgentLoop.objects.filter(conversation__in=pks, turn_id__isnull=False)


def _ask(ref: ConversationRef, text: str) -> None:
    if ref.version == Version.V0:
        writes.append(ref, [event(text, is_input=True)])
        return
    authored = v1.authored(v1.user_message([v1.text_part(text)]), event_id=text)
    runs.take(ref, authored.event(text, is_input=True), run=True)


def _unfinished(held: Path) -> Iterator[str]:
    yield chunk({"content": "I will "})
    held.touch()
    while True:  # until the connection breaks
        time.sleep(0.1)
        yield chunk({"content": "."})


def set_up(user: User, base_url: str, counted: Path) -> None:
    """Give a user the model and the tools."""
    values = {"llm_model": "openai/gpt-x", "llm_base_url": base_url}
    user_settings.change_settings(user.pk, values, secrets={SettingSecret.LLM_API_KEY: KEY})
    program = {
        "name": "tools",
        "command": sys.executable,
        "args": ["-m", "tests.support.servers.tool_program", "counting", str(counted)],
        "env": {"PYTHONPATH": str(ROOT)},
    }
    user_settings.set_secret(user.pk, SettingSecret.MCP_CONFIG, json.dumps({"stdio_servers": [program]}))


def counts(counted: Path) -> Mapping[tuple[str, str], int]:
    """Return how often each tool was run with each key."""
    lines = counted.read_text().splitlines()
    return Counter((line.split()[1], line.split()[2]) for line in lines if not line.endswith(" started"))


def of_kind(talk: Talk, *kinds: Kind) -> list[Event]:
    return list(Event.objects.of(talk.ref).filter(kind__in=kinds).oldest_first())


def require_whole(talk: Talk) -> None:
    """Check that each call has one result, and that the turn has ended once, with its words said once."""
    calls = of_kind(talk, Kind.TOOL_CALL)
    answered = Counter(row.tool_call_id for row in of_kind(talk, Kind.TOOL_RESULT, Kind.ERROR))
    assert answered == Counter(row.tool_call_id for row in calls), talk
    assert len(calls) == len(answered) == CALLS, talk
    assert len(of_kind(talk, Kind.TURN)) == 1, talk
    said = [row.text for row in of_kind(talk, Kind.MESSAGE) if row.source == "agent"]
    assert said.count(END) == 1, talk
    assert said[-1] == END, talk
    cut = [text for text in said if text.startswith("I will ")]
    assert len(cut) == (talk.hold.point == IN_MODEL), talk


@pytest.mark.timeout(3600)
@pytest.mark.slow(on="postgresql")
def test_a_server_that_is_killed_at_any_point_of_a_call_runs_nothing_twice(
    server: Server, alice: User, chance: random.Random, tmp_path: Path, is_full: bool
) -> None:
    rounds, at_once = (20, 10) if is_full else (1, 3)
    slowest_s = 0.0
    for number in range(rounds):
        directory = tmp_path / f"round-{number}"
        directory.mkdir()
        slowest_s = max(slowest_s, play(server, alice, chance, directory, at_once=at_once))
    print(f"\n{rounds * at_once} kills at each of {len(POINTS)} points; settled within {slowest_s:.1f} s")


def play(server: Server, alice: User, chance: random.Random, directory: Path, *, at_once: int) -> float:
    """Kill a server with a turn at each point, so many of each; return after how long all were settled."""
    talks, counted = Talks(directory), directory / "counted"
    environment = {
        "CONVSERVER_AGENT": AGENT,
        "CONVSERVER_MAX_CONCURRENT": "1000",
        "CONVSERVER_REPEATABLE_TOOLS": "count_again",
        "HOLD_DIR": str(directory),
    }
    with model_server(talks.answer) as (base_url, _):
        set_up(alice, base_url, counted)
        talks.begin(alice, chance, POINTS * at_once)
        server.start(constants=SWEEPS_OFTEN, **environment)
        wait_until(lambda: talks.are_held, within_s=WITHIN_S)
        server.kill()
        for name in talks.all:
            (directory / name).unlink()
        server.start(constants=SWEEPS_OFTEN, **environment)
        settled_s = seconds_until(lambda: talks.are_settled)
        assert talks.waiting() == {name for name, talk in talks.all.items() if talk.is_unknown}
        ran = counts(counted)
        assert all(times == 1 for (tool, _), times in ran.items() if tool == "count")
        answers = answer_all(talks, chance)
        wait_until(lambda: talks.are_over, within_s=WITHIN_S)
        server.kill()
    for talk in talks.all.values():
        require_whole(talk)
    require_counts(counts(counted), ran, again=answers.count(UnknownAnswer.RUN_AGAIN))
    return settled_s


def seconds_until(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    wait_until(condition, within_s=WITHIN_S)
    return time.monotonic() - began


def answer_all(talks: Talks, chance: random.Random) -> list[UnknownAnswer]:
    """Say of each unknown call what became of it."""
    answers = []
    for name in sorted(talks.waiting()):
        answer = chance.choice(list(UnknownAnswer))
        accepted = answer is not UnknownAnswer.SKIP
        decisions.decide(talks.all[name].ref, accepted, "I have looked.", outcome=answer)
        answers.append(answer)
    return answers


def require_counts(ran: Mapping[tuple[str, str], int], before: Mapping[Any, int], *, again: int) -> None:
    """Check that only what a person or the operator wanted to run again ran more than once."""
    repeated = sum(times > 1 for (tool, _), times in ran.items() if tool == "count")
    assert repeated <= again
    assert all(times <= 2 for times in ran.values())
    assert all(ran[key] >= times for key, times in before.items())
