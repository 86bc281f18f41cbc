"""What clients of OpenHands see of a task on a repository that they start, request by request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from sessions_app import astore
from sessions_app.agents.llm import library
from sessions_app.agents.llm.models import Wire
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.git_providers.base import ProviderType
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import user_settings
from tests.support.people.commands import require_bubblewrap
from tests.support.people.model_talks import model
from tests.support.people.scripted_agent import until_true
from tests.support.servers.git_host import GitHost
from tests.support.servers.model_server import Answer, Asked, calling, completion
from tests.support.wires.app_face import CONVERSATIONS, said
from tests.support.wires.v0 import CONVERSATIONS as INFOS

pytestmark = pytest.mark.one_engine

TOKEN = "ghp_0123456789abcdefTOKEN"


@pytest.fixture(autouse=True)
def workspaces(tmp_path: Path, configured: Callable[..., None]) -> None:
    directory = tmp_path / "workspaces"
    configured(workspaces=directory, sandbox=SandboxName.AUTO, agent=BUILT_IN_AGENTS["auto"])
    require_bubblewrap()


@pytest.fixture
async def host(tmp_path: Path, alice: User) -> AsyncIterator[GitHost]:
    """A provider with a repository that it opens for a token of alice."""
    await library.client_of(Wire.OPENAI)  # importing the library takes seconds
    directory = tmp_path / "provider"
    directory.mkdir()
    with GitHost(ProviderType.GITHUB, TOKEN, directory) as served:
        served.make(
            "site", {"sums.py": "def add(a, b):\n    return a - b\n", "dot.png": b"", "page.svg": b""}
        )
        tokens = {served.provider: served.token}
        await astore.call(user_settings.change_provider_tokens, alice.pk, tokens, mcp_config=None)
        yield served


async def started(rest: httpx.AsyncClient, version: str) -> str:
    """Start a conversation about the repository with its first message, as the pages do; return its id."""
    if version == "V0":
        body = {"repository": "acme/site", "git_provider": "github", "initial_user_msg": "Look."}
        found = (await rest.post(INFOS, json=body)).json()
        return str(found["conversation_id"])
    named = {"selected_repository": "acme/site", "git_provider": "github", "initial_message": said("Look.")}
    start = (await rest.post(CONVERSATIONS, json=named)).json()

    async def polled() -> str | None:
        [task] = (await rest.get(f"{CONVERSATIONS}/start-tasks", params={"ids": start["id"]})).json()
        assert task["status"] != "ERROR", task
        found: str | None = task["app_conversation_id"] if task["status"] == "READY" else None
        return found

    conversation_id = await until_true(polled)
    assert conversation_id
    return conversation_id


async def ended(rest: httpx.AsyncClient, conversation_id: str) -> list[dict[str, Any]]:
    """Wait until the agent has ended; return the events of V1."""
    at = f"/agent/api/conversations/{conversation_id}"

    async def is_ended() -> bool:
        found = (await rest.get(at)).json()["execution_status"]
        return found not in ("idle", "running")

    await until_true(is_ended)
    page = (await rest.get(f"{at}/events/search", params={"limit": 100})).json()
    items: list[dict[str, Any]] = page["items"]
    return items


def looks(asked: Asked) -> Answer:
    """Look at the directory once, and say so; the other requests ask for a title."""
    if not asked.body.get("tools"):
        return completion(["A title"])
    if any(each["role"] == "tool" for each in asked.body["messages"]):
        return completion(["Done."])
    return calling(("terminal", {"command": "ls -R"}))


@pytest.mark.parametrize("version", ["V0", "V1"])
async def test_a_repository_that_a_request_names_is_cloned_after_the_request_has_ended(
    rest: httpx.AsyncClient, alice: User, host: GitHost, version: str
) -> None:
    async with model(alice, looks):
        events = await ended(rest, await started(rest, version))
    assert [each["detail"] for each in events if each["kind"] == "ConversationErrorEvent"] == []
    [seen] = [each["observation"] for each in events if each["kind"] == "ObservationEvent"]
    assert "sums.py" in str(seen)


@pytest.mark.parametrize("version", ["V0", "V1"])
async def test_agent_canvas_finds_the_files_and_changes_in_the_directory_that_it_is_shown(
    rest: httpx.AsyncClient, alice: User, host: GitHost, version: str
) -> None:
    async with model(alice, looks):
        conversation_id = await started(rest, version)
        await ended(rest, conversation_id)
    page = f"http://localhost/conversations/{conversation_id}"
    rest.headers.update({"content-type": "application/json", "sec-fetch-mode": "cors", "referer": page})
    [shown] = (await rest.get("/api/conversations", params={"ids": conversation_id})).json()
    directory = shown["workspace"]["working_dir"]
    command = {"command": "find . -name '*.py' && echo '# Notes' >NOTES.md", "cwd": directory}
    run = (await rest.post("/api/bash/execute_bash_command", json=command)).json()
    assert (run["stdout"], run["exit_code"]) == ("./sums.py\n", 0)
    changes = (await rest.get("/api/git/changes", params={"path": directory})).json()
    assert [(each["status"], each["path"]) for each in changes] == [("ADDED", "NOTES.md")]
    commits = (await rest.get("/api/git/commits", params={"path": directory, "limit": 50})).json()["commits"]
    assert [each["subject"] for each in commits] == ["First"]
    assert (await rest.post("/api/auth/workspace-session", headers={"content-type": ""})).status_code == 204
    base = f"/api/conversations/{shown['id']}/workspace"
    assert (await rest.get(f"{base}/NOTES.md")).text == "# Notes\n"
    types = [(await rest.get(f"{base}/{name}")).headers["content-type"] for name in ("dot.png", "page.svg")]
    assert types == ["image/png", "application/octet-stream"]
    for outside in ("none.py", "%2Fetc/passwd", "../../../etc/passwd"):
        assert (await rest.get(f"{base}/{outside}")).status_code in (400, 404)
