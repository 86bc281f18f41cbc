"""A replay whose server is killed goes on where it was."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User

from conversations.log import reads, writes
from conversations.models import ConversationRef, CreationParameters, Event
from conversations.store import creation
from sessions_app.settings import run_options
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.no_second_try

WITHIN_S = 60.0
LATER = "2026-01-01T11:00:00"
RECORDING = [
    {"action": "message", "source": "agent", "timestamp": "2026-01-01T10:00:00", "args": {"content": "one"}},
    {"action": "run", "source": "agent", "timestamp": "2026-01-01T10:00:00", "args": {"command": "ls"}},
    {"observation": "run", "source": "agent", "timestamp": LATER, "content": "a.txt"},
    {"action": "message", "source": "agent", "timestamp": LATER, "args": {"content": "two"}},
]
SWEEPS_OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2}


@pytest.mark.needs_engine
@pytest.mark.slow(on="postgresql")
def test_a_call_that_a_crash_cut_off_gets_its_result_and_nothing_comes_twice(
    server: Server, alice: User
) -> None:
    parameters = {"replay": json.dumps(RECORDING), "replay_pace": 1}
    talk = creation.create(alice, conversation_id="talk", parameters=parameters, title="A talk")
    run_options.change(talk, {"agent": "replay"})
    writes.append(talk, [event("Play it.", is_input=True)])
    server.start(constants=SWEEPS_OFTEN, CONVSERVER_AGENT="demo")
    wait_until(lambda: Event.objects.of(talk).filter(kind="tool_call").exists(), within_s=WITHIN_S)
    server.kill()
    CreationParameters.objects.filter(pk=talk.pk).update(parameters=_at_once(talk))
    server.start(constants=SWEEPS_OFTEN, CONVSERVER_AGENT="demo")
    wait_until(lambda: Event.objects.of(talk).filter(kind="turn").exists(), within_s=WITHIN_S)
    shown = [(each["kind"], each["text"]) for each in reads.read_after(talk, 0)]
    assert [each for each in shown if each[0] not in ("state", "turn", "other")] == [
        ("message", "one"),
        ("tool_call", "ls"),
        ("tool_result", "a.txt"),
        ("message", "two"),
    ]


def _at_once(talk: ConversationRef) -> dict[str, object]:
    found: dict[str, object] = CreationParameters.objects.get(pk=talk.pk).parameters
    return found | {"replay_pace": 0}
