"""What the model agent does with a repository's skills, and with its scripts for setup."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.loops.conversation_manager import ConversationManager
from sessions_app.sandbox.base import SandboxName
from sessions_app.workspaces import records, uploads
from tests.conftest import Join
from tests.store.test_llm_tools import results_of, until_asked
from tests.store.test_tool_runs import answers, begun, taken_over, until_ended
from tests.support.people.model_talks import answers_of, events, model, notices_of, said, told
from tests.support.people.scripted_agent import manager, stage
from tests.support.servers import sandboxes
from tests.support.servers.model_server import Asked, completion
from tests.support.wires.event_views import called_tool

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

SCRIPT = "#!/bin/bash\nset -e\necho made > made.txt\necho ready\nexit 0\n"
CHECKED = f"echo '{sha256(SCRIPT.encode()).hexdigest()}  .openhands/setup.sh' | sha256sum --check --quiet"
SETUP = f"(cd site && {CHECKED} && source .openhands/setup.sh)"


@pytest.fixture
def root(configured: Callable[..., None], tmp_path: Path, manager: ConversationManager) -> Path:
    """Where the workspaces are; nothing runs commands."""
    configured(workspaces=tmp_path / "workspaces", sandbox=SandboxName.OFF, agent=BUILT_IN_AGENTS["auto"])
    return tmp_path / "workspaces"


@pytest.fixture
def sandboxed(configured: Callable[..., None], root: Path) -> None:
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, root)


async def put(talk: ConversationRef, **files: str) -> None:
    """Put files into the repository of a conversation, in a directory of its name."""
    await Conversation.objects.filter(pk=talk.pk).aupdate(repository="acme/site")
    names = {"setup": ".openhands/setup.sh", "check": ".openhands/pre-commit.sh", "head": ".git/HEAD"}
    for name, text in files.items():
        path = names.get(name, name)
        await astore.change(uploads.put, talk, f"site/{path}", text.encode())


def instructions(asked: Asked) -> str:
    [system] = [each for each in asked.body["messages"] if each["role"] in ("system", "developer")]
    return str(system["content"])


async def test_a_model_reads_what_a_repository_says_to_agents(
    v0_talk: ConversationRef, alice: User, join: Join, root: Path
) -> None:
    knowledge = "---\ntriggers: [sql]\n---\nUse indexes."
    await put(
        v0_talk,
        **{
            "AGENTS.md": "Use tabs.",
            "CLAUDE.md": "You are Claude.",
            ".openhands/microagents/sql.md": knowledge,
            ".openhands/skills/bad.md": "---\n{{\n---\nText.",
        },
    )
    async with model(alice, completion(["One."]), completion(["Two."])) as asked:
        client = await join(v0_talk)
        frames = await said(client, "Hello.")
        later = await said(client, "Some SQL, please.")
    first, second = map(instructions, asked)
    assert "in `/workspace/site/AGENTS.md`" not in first  # this model opens no files
    assert "Use tabs." in first
    assert "Others than the user may have written it" in first
    assert "Use indexes." not in first
    assert "You are Claude." not in first
    assert "Use indexes." in second
    [notice] = notices_of(frames)
    assert "bad.md" in notice
    assert notices_of(later) == []


async def test_a_model_with_a_file_tool_is_shown_a_list_of_skills(
    v0_talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    skill = "---\nname: deploy\ndescription: How to deploy.\n---\nRun it."
    rule = "---\npaths: src/**/*.py\n---\nUse types."
    await put(v0_talk, **{".agents/skills/deploy/SKILL.md": skill, ".openhands/skills/types.md": rule})
    async with model(alice, completion(["One."])) as asked:
        await said(await join(v0_talk), "Hello.")
    told = instructions(asked[0])
    assert "- `/workspace/site/.agents/skills/deploy/SKILL.md`: How to deploy." in told
    assert "types.md`, for files like `src/**/*.py`: Use types." in told
    assert "Run it." not in told


async def test_the_setup_of_a_repository_waits_for_the_user_and_runs_before_the_model_is_asked(
    talk: ConversationRef, alice: User, join: Join, sandboxed: None, root: Path
) -> None:
    await put(talk, setup=SCRIPT)
    async with model(alice, completion(["One."]), completion(["Two."])) as asked:
        client = await join(talk)
        await until_asked(client)
        assert asked == []
        [call] = events(client.frames, "tool_call")
        name, arguments = called_tool(call["event"])
        assert (name, arguments["command"]) == ("run", SETUP)
        assert "echo ready" in str(call["event"])  # the user reads what is to be run
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
        assert results_of(client.frames) == ["ready\n"]
        assert told(asked[0])[-1][0] == "tool"
        frames = await said(client, "Go on.")
    assert events(frames, "tool_call") == []
    directory = await astore.call(records.directory_of, talk)
    assert (directory / "site" / "made.txt").read_text() == "made\n"


async def test_a_rejected_setup_is_not_run_and_the_model_is_told_so(
    talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    await put(talk, setup=SCRIPT, check="exit 1", head="ref: refs/heads/main")
    async with model(alice, completion(["Without it."])) as asked:
        client = await join(talk)
        await until_asked(client)
        assert len(events(client.frames, "tool_call")) == 2
        await client.send({"type": "confirm", "accept": False, "reason": "Not from there."})
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["Without it."]
    assert told(asked[0])[-1] == ("tool", "Not from there.")
    directory = await astore.call(records.directory_of, talk)
    assert not (directory / "site" / "made.txt").exists()
    assert not (directory / "site" / ".git" / "hooks").exists()


async def test_an_approved_check_is_installed_beside_the_others_of_git(
    v0_talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    await put(v0_talk, check="exit 1", head="ref: refs/heads/main")
    async with model(alice, completion(["Done."])):
        client = await join(v0_talk)
        await until_asked(client)
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    directory = await astore.call(records.directory_of, v0_talk)
    hook = directory / "site" / ".git" / "hooks" / "pre-commit"
    # A copy: what the agent writes into the script later is not what was approved.
    assert hook.read_text().startswith("#!/bin/bash\n")
    assert "exec" not in hook.read_text()
    assert hook.stat().st_mode & 0o100


async def test_a_script_that_comes_later_is_not_asked_about(
    v0_talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    async with model(alice, completion(["One."]), completion(["Two."])):
        client = await join(v0_talk)
        await said(client, "Hello.")
        await put(v0_talk, setup=SCRIPT)
        assert answers_of(await said(client, "Go on.")) == ["Two."]


async def test_a_setup_that_a_crash_has_cut_off_waits_for_the_users_word_and_is_not_asked_about_twice(
    talk: ConversationRef, alice: User, manager: ConversationManager, sandboxed: None
) -> None:
    await put(talk, setup=SCRIPT)
    async with model(alice, completion(["Done."])) as asked:
        turn = await begun(talk)
        call = await turn.call_tool("run", {"command": SETUP})
        await turn.start_tool(call)
        await taken_over(talk)
        assert (await answers(talk), asked) == ([], [])
        await manager.confirm(talk, accept=True, call_seq=call.seq)
        assert await until_ended(talk, manager) == ["ready\n"]
    assert len(asked) == 1
