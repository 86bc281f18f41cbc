"""kill -9 in the middle of a clone: git ends with the server, and the next server begins the clone again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.log import writes
from conversations.models import Version
from conversations.store import creation
from sessions_app.git_providers.base import ProviderType
from sessions_app.models import AgentLoop, Workspace
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.people.model_talks import KEY
from tests.support.servers import sandboxes
from tests.support.servers.git_host import GitHost
from tests.support.servers.model_server import completion, model_server
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.no_second_try, pytest.mark.one_engine]

SWEEPS_OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2}
WITHIN_S = 60.0


def test_a_clone_whose_server_is_killed_is_begun_again_and_nothing_is_left(
    server: Server, alice: User, tmp_path: Path, configured: Callable[..., None]
) -> None:
    root = tmp_path / "workspaces"
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, root)
    provider = tmp_path / "provider"
    provider.mkdir()
    environment = {"CONVSERVER_SANDBOX": "bubblewrap", "CONVSERVER_WORKSPACES": str(root)}
    with (
        GitHost(ProviderType.GITHUB, "ghp_killed", provider) as host,
        model_server(lambda _: completion(["Done."])) as (base_url, _),
    ):
        host.make("site", {"README.md": "A site.\n"})
        host.holds = threading.Event()
        values = {"llm_model": "openai/gpt-x", "llm_base_url": base_url}
        user_settings.change_settings(alice.pk, values, secrets={SettingSecret.LLM_API_KEY: KEY})
        user_settings.change_provider_tokens(alice.pk, {host.provider: host.token}, mcp_config=None)
        talk = creation.create(
            alice, conversation_id="talk", version=Version.V0, title="A talk", repository="acme/site"
        )
        writes.append(talk, [event("Go.", is_input=True)])
        server.start(constants=SWEEPS_OFTEN, CONVSERVER_AGENT="auto", **environment)
        try:
            assert host.held.wait(WITHIN_S)
            server.kill()
            wait_until(lambda: not sandboxes.running(f"{host.address}/acme/site"), within_s=WITHIN_S)
        finally:
            host.holds.set()
        directory = Workspace.objects.get(conversation_id=talk.pk).directory
        assert [each.name for each in root.glob(f"{directory}.*")] != []
        server.start(constants=SWEEPS_OFTEN, CONVSERVER_AGENT="auto", **environment)
        wait_until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None).exists(), within_s=WITHIN_S)
        assert (root / directory / "site" / "README.md").read_text() == "A site.\n"
        assert list(root.glob(f"{directory}.*")) == []
        server.kill()
