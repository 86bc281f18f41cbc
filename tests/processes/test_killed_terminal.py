"""kill -9 in the middle of a command: nothing of it goes on, and it runs again only if a person wants it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.events import Kind
from conversations.log import writes
from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from sessions_app.loops import decisions
from sessions_app.models import AgentLoop, ExecutionStatus, UnknownAnswer, Workspace
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.people.model_talks import KEY
from tests.support.servers import sandboxes
from tests.support.servers.model_server import Answer, Asked, calling, completion, model_server
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.no_second_try, pytest.mark.one_engine]

SWEEPS_OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2}
WITHIN_S = 60.0


def results(talk: ConversationRef) -> list[str]:
    rows = Event.objects.of(talk).filter(kind__in=[Kind.TOOL_RESULT, Kind.ERROR]).oldest_first()
    return [row.text for row in rows]


@pytest.mark.parametrize("answer", [UnknownAnswer.SKIP, UnknownAnswer.RUN_AGAIN])
def test_a_command_whose_server_is_killed_ends_and_does_not_run_again_unasked(
    server: Server,
    alice: User,
    tmp_path: Path,
    configured: Callable[..., None],
    answer: UnknownAnswer,
) -> None:
    root = tmp_path / "workspaces"
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, root)
    word = f"1000.{secrets.randbelow(10**9):09d}"
    # The second time it has something to find, and ends.
    command = f"echo ran >> runs; [ $(wc -l < runs) = 2 ] || sleep {word}"

    def answers(asked: Asked) -> Answer:
        has_result = any(each["role"] == "tool" for each in asked.body["messages"])
        return completion(["Done."]) if has_result else calling(("terminal", {"command": command}))

    environment = {"CONVSERVER_SANDBOX": "bubblewrap", "CONVSERVER_WORKSPACES": str(root)}
    with model_server(answers) as (base_url, _):
        values = {"llm_model": "openai/gpt-x", "llm_base_url": base_url}
        user_settings.change_settings(alice.pk, values, secrets={SettingSecret.LLM_API_KEY: KEY})
        talk = creation.create(alice, conversation_id="talk", version=Version.V0, title="A talk")
        writes.append(talk, [event("Go.", is_input=True)])
        server.start(constants=SWEEPS_OFTEN, CONVSERVER_AGENT="auto", **environment)
        wait_until(lambda: bool(sandboxes.running(word)), within_s=WITHIN_S)
        runs = root / Workspace.objects.get(conversation_id=talk.pk).directory / "runs"
        server.kill()
        wait_until(lambda: not sandboxes.running(word), within_s=WITHIN_S)
        server.start(constants=SWEEPS_OFTEN, CONVSERVER_AGENT="auto", **environment)
        waiting = AgentLoop.objects.of(talk).filter(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)
        wait_until(lambda: waiting.exists(), within_s=WITHIN_S)
        assert runs.read_text() == "ran\n"
        assert results(talk) == []
        decisions.decide(talk, answer is not UnknownAnswer.SKIP, "I have looked.", outcome=answer)
        wait_until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None).exists(), within_s=WITHIN_S)
        assert len(results(talk)) == 1
        assert runs.read_text() == "ran\n" * (1 if answer is UnknownAnswer.SKIP else 2)
        server.kill()
