"""kill -9 while the files of a turn are kept: the next checkpoint has them, and nothing is in its way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.log import writes
from conversations.models import Version
from conversations.store import creation
from sessions_app.models import AgentLoop, FilesCheckpoint, Workspace
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

WITHIN_S = 60.0


def test_the_files_of_a_turn_whose_server_was_killed_are_in_the_next_checkpoint(
    server: Server, alice: User, tmp_path: Path, configured: Callable[..., None]
) -> None:
    root = tmp_path / "workspaces"
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, root)

    def answers(asked: Asked) -> Answer:
        if asked.body["messages"][-1]["role"] == "tool":
            return completion(["Done."])
        # Thousands of files take git so long that the server is killed meanwhile.
        command = "mkdir -p d && cd d && now=$(date +%s%N) && for i in $(seq 1500); do echo $now > $i; done"
        return calling(("terminal", {"command": command}))

    environment = {"CONVSERVER_SANDBOX": "bubblewrap", "CONVSERVER_WORKSPACES": str(root)}
    with model_server(answers) as (base_url, _):
        values = {"llm_model": "openai/gpt-x", "llm_base_url": base_url}
        user_settings.change_settings(alice.pk, values, secrets={SettingSecret.LLM_API_KEY: KEY})
        talk = creation.create(alice, conversation_id="talk", version=Version.V0, title="A talk")
        writes.append(talk, [event("Go.", is_input=True)])
        server.start(constants=None, CONVSERVER_AGENT="auto", **environment)
        ended = AgentLoop.objects.of(talk).filter(turn_id=None)
        kept = FilesCheckpoint.objects.of(talk)
        wait_until(lambda: kept.exists() and ended.exists(), within_s=WITHIN_S)
        shadow = root / f"{Workspace.objects.get(conversation_id=talk.pk).directory}.checkpoints"
        wait_until(lambda: (shadow / "index.lock").exists() or kept.count() > 1, within_s=WITHIN_S)
        server.kill()
        before = kept.count()
        writes.append(talk, [event("Go on.", is_input=True)])
        server.start(constants=None, CONVSERVER_AGENT="auto", **environment)
        wait_until(lambda: kept.count() >= before + 2, within_s=WITHIN_S)
        server.kill()
    last = kept.order_by("-pk")[0]
    assert last.cause == "turn"
    assert last.changed == 1500
    assert kept.order_by("-pk")[1].cause == "before_turn"
