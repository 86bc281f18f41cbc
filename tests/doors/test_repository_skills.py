"""What both wires show of a repository's skills and hooks, also of repositories that mean harm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.repository_skills import reading
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.workspaces import records
from tests.support.wires.app_face import CONVERSATIONS as APP_CONVERSATIONS
from tests.support.wires.v1 import AGENT, HEX, ID, known

pytestmark = pytest.mark.one_engine

Configured = Callable[..., None]

MICROAGENTS = "/api/conversations/talk/microagents"
DEPLOY = "---\nname: deploy\ndescription: How to deploy.\n---\nRun `make deploy`."
HOOK = {"type": "command", "command": "check.sh", "timeout": 5}


@pytest.fixture
def v0(alice: User, tmp_path: Path, configured: Configured) -> Path:
    """The repository of the V0 conversation `talk`, in its workspace."""
    configured(workspaces=tmp_path / "workspaces")
    talk = creation.create(alice, conversation_id="talk", version=Version.V0)
    return repository_of(records.directory_of(talk))


@pytest.fixture
def v1(alice: User, tmp_path: Path, configured: Configured) -> Path:
    """The repository of a V1 conversation whose start has brought a skill."""
    configured(workspaces=tmp_path / "workspaces")
    started = {"name": "tone", "content": "Be brief.", "trigger": None}
    agent = {"kind": "Agent", "agent_context": {"skills": [started]}}
    talk = agent_setups.create(alice, NewSetup(agent=agent), conversation_id=HEX)
    return repository_of(records.directory_of(talk))


def repository_of(workspace: Path) -> Path:
    Conversation.objects.update(repository="acme/site")
    repository = workspace / "site"
    repository.mkdir()
    return repository


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


async def microagents(rest: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in known(await rest.get(MICROAGENTS))["microagents"]}


async def problems() -> list[str]:
    talk = await Conversation.objects.aget(public_id="talk")
    return (await astore.call(reading.of_conversation, talk.ref)).problems


async def test_v0_shows_what_is_always_told_and_what_a_keyword_calls(
    v0: Path, rest: httpx.AsyncClient
) -> None:
    assert await microagents(rest) == {}
    write(
        v0,
        {
            "AGENTS.md": "---\nUse tabs.",
            ".openhands/microagents/repo.md": "---\nname: style\n---\nBe neat.",
            ".openhands/microagents/db/sql.md": "---\ntriggers: [sql, Postgres]\n---\nUse indexes.",
            ".openhands/microagents/README.md": "About these.",
            ".openhands/skills/fix.md": "---\ninputs: [{name: PR, description: Its number}]\n---\nFix ${PR}.",
            ".agents/skills/deploy/SKILL.md": DEPLOY,
            ".agents/skills/deploy/references/more.md": "More.",
        },
    )
    found = await microagents(rest)
    kinds = {name: (each["type"], each["triggers"]) for name, each in found.items()}
    assert kinds == {
        "agents": ("repo", []),
        "deploy": ("knowledge", []),
        "fix": ("knowledge", ["/fix"]),
        "style": ("repo", []),
        "db/sql": ("knowledge", ["sql", "Postgres"]),
    }
    assert found["agents"]["content"] == "---\nUse tabs."
    assert found["fix"]["inputs"] == [{"name": "PR", "description": "Its number"}]
    assert "ask for it" in found["fix"]["content"]


async def test_the_repository_comes_before_the_workspace_and_newer_folders_before_older(
    v0: Path, rest: httpx.AsyncClient
) -> None:
    skill = ".openhands/skills/a.md"
    write(v0, {skill: "of skills", ".openhands/microagents/a.md": "of microagents"})
    write(v0.parent, {skill: "of the workspace", "agents.md": "of the workspace"})
    found = await microagents(rest)
    assert {name: each["content"] for name, each in found.items()} == {
        "a": "of skills",
        "agents": "of the workspace",
    }


async def test_v1_shows_the_skills_of_the_repository_and_of_the_start(
    v1: Path, rest: httpx.AsyncClient
) -> None:
    url = f"{APP_CONVERSATIONS}/{ID}/skills"
    own = {"name": "tone", "type": "repo", "content": "Be brief.", "triggers": []}
    assert known(await rest.get(url)) == {"skills": [own]}
    write(v1, {".agents/skills/deploy/SKILL.md": DEPLOY, ".agents/skills/tone.md": "Be rude."})
    assert known(await rest.get(url))["skills"] == [
        {**own, "content": "Be rude."},
        {"name": "deploy", "type": "agentskills", "content": "Run `make deploy`.", "triggers": []},
    ]


async def test_a_program_asks_for_the_skills_and_hooks_of_a_directory(
    v1: Path, rest: httpx.AsyncClient
) -> None:
    write(v1, {".agents/skills/deploy/SKILL.md": DEPLOY})
    write(v1, {".openhands/hooks.json": json.dumps({"hooks": {"PreToolUse": [{"hooks": [HOOK]}]}})})
    body = {"project_dir": "/workspace/project/site"}
    found = known(await rest.post(f"{AGENT.removesuffix('/conversations')}/skills", json=body))
    assert found["sources"]["project"] == 1
    [skill] = found["skills"]
    assert skill["source"] == "/workspace/project/site/.agents/skills/deploy/SKILL.md"
    assert (skill["description"], skill["is_agentskills_format"]) == ("How to deploy.", True)
    hooks = known(await rest.post(f"{AGENT.removesuffix('/conversations')}/hooks", json=body))["hook_config"]
    [matcher] = hooks["pre_tool_use"]
    assert (matcher["matcher"], matcher["hooks"][0]["command"]) == ("*", "check.sh")
    assert hooks["stop"] == []


async def test_v1_lists_the_hooks_of_the_repository(
    v1: Path, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    url = f"{APP_CONVERSATIONS}/{ID}/hooks"
    assert known(await rest.get(url)) == {"hooks": []}
    shown = {"matcher": "*", "hooks": [{**HOOK, "async": False}]}
    forms: dict[str, tuple[str, list[Any]]] = {
        "own names": (
            json.dumps({"stop": [{"hooks": [HOOK]}]}),
            [{"event_type": "stop", "matchers": [shown]}],
        ),
        "an unknown time": (json.dumps({"Never": [{"hooks": [HOOK]}]}), []),
        "a command without one": (json.dumps({"stop": [{"hooks": [{"type": "command"}]}]}), []),
        "two names for one time": ('{"stop": [], "Stop": []}', []),
        "no JSON": ("{", []),
        "deep": ("[" * 100_000, []),
        "a list": ("[]", []),
        "long": (json.dumps({"stop": [{"matcher": "x" * 200_000, "hooks": [HOOK]}]}), []),
        "no text": ("\0", []),
    }
    for name, (text, hooks) in forms.items():
        with subtests.test(name):
            write(v1, {".openhands/hooks.json": text})
            assert known(await rest.get(url)) == {"hooks": hooks}
    half = json.dumps({"stop": [{"hooks": [{**HOOK, "command": "\ud83d"}]}]})
    write(v1, {".openhands/hooks.json": half})
    assert known(await rest.get(url))["hooks"][0]["matchers"][0]["hooks"][0]["command"] == "\ufffd"


async def test_files_that_are_no_skills_are_left_out_with_the_reason(
    v0: Path, rest: httpx.AsyncClient
) -> None:
    outside = v0.parent.parent / "outside.md"
    outside.write_text("A secret of the server.")
    write(
        v0,
        {
            ".agents/skills/Bad_Name/SKILL.md": "---\nname: Bad_Name\n---\nText.",
            ".agents/skills/other/SKILL.md": "---\nname: another\n---\nText.",
            ".openhands/skills/long.md": "x" * 200_001,
            ".openhands/skills/binary.md": b"\x00\x01",
            ".openhands/skills/latin.md": "gr\u00fcn".encode("latin-1"),
            ".openhands/skills/yaml.md": "---\n{{{\n---\nText.",
            ".openhands/skills/slow.md": f"---\n{'[' * 9000}\n---\nText.",
            ".openhands/skills/good.md": "Good.",
        },
    )
    (v0 / "CLAUDE.md").symlink_to("../../outside.md")
    (v0 / "GEMINI.md").symlink_to(".openhands/skills/good.md")
    os.mkfifo(v0 / "AGENTS.md")
    (v0 / ".agents/skills/deploy").mkdir()
    (v0 / ".agents/skills/deploy/SKILL.md").symlink_to("/etc/passwd")
    assert set(await microagents(rest)) == {"gemini"}  # `good.md` was read already
    told = "\n".join(await problems())
    for name in ("Bad_Name", "other", "long.md", "binary", "latin", "yaml", "slow", "CLAUDE.md", "deploy"):
        assert name in told
    assert "secret" not in told


async def test_of_very_many_skills_some_are_read(v0: Path, rest: httpx.AsyncClient) -> None:
    folder = v0 / ".agents/skills"
    folder.mkdir(parents=True)
    for number in range(10_000):
        (folder / f"{number:05}.md").write_text("Text.")
    assert len(await microagents(rest)) == 200
    assert "more skills than are read" in (await problems())[0]
