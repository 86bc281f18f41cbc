"""A repository that a conversation names is in its workspace before its model is asked."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations import tool_facts
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.git_providers.base import GitRemote, ProviderType
from sessions_app.git_providers.client import PROVIDERS
from sessions_app.loops.conversation_manager import ConversationManager
from sessions_app.models import Workspace
from sessions_app.outbound.hosts import HostRefused
from sessions_app.outbound.internal import parse_all
from sessions_app.outbound.programs import ProgramWay, way_of
from sessions_app.repositories import bare, preparing, pushing
from sessions_app.repositories.own_git import Access
from sessions_app.repositories.pushing import BranchWanted
from sessions_app.repositories.runs import RepositoryFailed
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import user_settings
from sessions_app.shell_commands.piped import PipedProgram
from sessions_app.workspaces import records
from tests.conftest import Join
from tests.store.test_llm_tools import results_of, until_asked
from tests.support.people.commands import require_bubblewrap
from tests.support.people.model_talks import answers_of, model, notices_of, said
from tests.support.people.scripted_agent import manager, stage
from tests.support.servers import sandboxes
from tests.support.servers.git_host import GitHost, git
from tests.support.servers.model_server import calling, completion

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

TOKEN = "ghp_0123456789abcdefTOKEN"
Make = Callable[..., Awaitable[ConversationRef]]


@pytest.fixture
def root(tmp_path: Path, manager: ConversationManager, configured: Callable[..., None]) -> Path:
    """Where the workspaces are."""
    directory = tmp_path / "workspaces"
    configured(workspaces=directory, sandbox=SandboxName.AUTO, agent=BUILT_IN_AGENTS["auto"])
    require_bubblewrap()
    return directory


@pytest.fixture(params=[ProviderType.GITHUB])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GitHost]:
    directory = tmp_path / "provider"
    directory.mkdir()
    with GitHost(request.param, TOKEN, directory) as served:
        yield served


@pytest.fixture
def make(alice: User, root: Path, host: GitHost) -> Make:
    """Create a conversation about a repository of the provider, for which its owner has a token."""

    async def made(name: str = "site", version: Version = Version.V0, **members: str) -> ConversationRef:
        tokens = {host.provider: host.token}
        await astore.call(user_settings.change_provider_tokens, alice.pk, tokens, mcp_config=None)
        named: dict[str, Any] = {
            "repository": host.full_name(name),
            "provider": host.provider.value,
            **members,
        }
        return await astore.call(
            lambda: creation.create(alice, conversation_id="talk", version=version, title="A talk", **named)
        )

    return made


def workspace_of(talk: ConversationRef, root: Path) -> Path:
    return root / Workspace.objects.get(conversation_id=talk.pk).directory


def besides(root: Path) -> list[str]:
    """Return what is beside the workspaces, without checkpoints of their files."""
    names = [each.name for each in root.iterdir() if "." in each.name.lstrip(".")]
    return [each for each in names if not each.endswith(".checkpoints")]


class Reports(list[str]):
    """What is told of a clone."""

    async def __call__(self, text: str, *, done: float | None, total: float | None) -> None:
        self.append(text)


def ran(command: str) -> tuple[str, dict[str, str]]:
    return "terminal", {"command": command}


@pytest.mark.parametrize(
    ("version", "directory"),
    [(Version.V0, "/workspace/site"), (Version.V1, "/workspace/project/site")],
)
async def test_a_model_finds_the_repository_cloned_and_is_told_where(
    make: Make, alice: User, join: Join, root: Path, host: GitHost, version: Version, directory: str
) -> None:
    tree = host.make("site", {"README.md": "A site.\n", "src/a.py": "one = 1\n"})
    git(tree, "checkout", "-q", "-b", "feature/login")
    (tree / "login.py").write_text("two = 2\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "Second")
    git(tree, "push", "-q", "origin", "feature/login")
    talk = await make(version=version, branch="feature/login")
    look = (
        f"env | grep -c {TOKEN[4:20]}; cd {directory} && cat login.py && git branch -a && git remote -v && "
        "git status --short --branch"
    )
    async with model(alice, calling(ran(look)), completion(["Done."])) as asked:
        frames = await said(await join(talk), "Look.")
    assert answers_of(frames) == ["Done."]
    [shown] = results_of(frames)
    assert shown.startswith("0\n")
    assert "two = 2" in shown
    assert "remotes/origin/main" in shown
    assert f"http://{host.address}/acme/site.git (fetch)" in shown
    assert "## feature/login...origin/feature/login" in shown
    name = f"`acme/site` is being cloned into `{directory}`."
    assert notices_of(frames) == [
        f"The repository {name}",
        f"The repository `acme/site` is in `{directory}`.",
    ]
    assert f"It is in the directory {directory}." in str(asked[0].body["messages"][0]["content"])
    assert besides(root) == []
    assert not any(TOKEN in str(each["event"]) for each in frames if each["type"] == "event")


async def test_a_clone_is_made_once_and_begun_again_after_a_failure(
    make: Make, root: Path, host: GitHost
) -> None:
    host.make("site", {"README.md": "A site.\n"})
    talk = await make()
    workspace = await astore.call(records.directory_of, talk)
    (workspace / "site").mkdir()
    (workspace / "site" / "mine.txt").write_text("Mine.")
    with pytest.raises(RepositoryFailed, match="Git failed in the workspace"):
        await preparing.prepare(talk, Reports())
    assert await asyncio.to_thread(os.listdir, workspace) == ["site"]
    assert [each.name for each in (workspace / "site").iterdir()] == ["mine.txt"]
    (workspace / "site" / "mine.txt").unlink()
    left = root / f"{(await Workspace.objects.aget()).directory}.git-left"
    left.mkdir()
    assert await preparing.prepare(talk, Reports()) is not None
    assert not left.exists()
    (workspace / "site" / "README.md").write_text("Mine.\n")
    asked = len(host.fetched)
    await preparing.prepare(talk, Reports())
    assert len(host.fetched) == asked
    assert (workspace / "site" / "README.md").read_text() == "Mine.\n"


async def test_a_repository_that_is_too_large_is_refused_with_nothing_left(
    make: Make, root: Path, host: GitHost, configured: Callable[..., None]
) -> None:
    host.make("site", {"noise": secrets.token_bytes(3_000_000)})
    host.make("tools", {"zeros": bytes(3_000_000)})
    configured(workspace_max_mb=2)
    talk = await make()
    with pytest.raises(RepositoryFailed, match="The repository is too large"):
        await preparing.prepare(talk, Reports())
    await Conversation.objects.aupdate(repository="acme/tools")
    with pytest.raises(RepositoryFailed, match=r"would hold 3,00.* may hold 2,000,000 bytes"):
        await preparing.prepare(talk, Reports())
    workspace = root / (await Workspace.objects.aget()).directory
    assert await asyncio.to_thread(os.listdir, workspace) == []


async def test_without_the_named_branch_the_main_one_is_checked_out_and_the_agent_knows(
    make: Make, alice: User, join: Join, host: GitHost
) -> None:
    host.make("site", {"README.md": "A site.\n"})
    talk = await make(branch="later")
    async with model(alice, completion(["I see."])) as asked:
        frames = await said(await join(talk), "Look.")
    note = "The provider has no branch 'later', so that 'main' is checked out."
    assert notices_of(frames)[-1].endswith(f"`/workspace/site`. {note}")
    assert note in str(asked[0].body["messages"][0]["content"])
    assert (await Conversation.objects.aget()).branch == "main"


async def test_without_a_token_the_agent_is_told_and_goes_on(
    make: Make, alice: User, join: Join, host: GitHost
) -> None:
    talk = await make()
    host.secret = "another"
    async with model(alice, completion(["I see."])) as asked:
        frames = await said(await join(talk), "Look.")
    assert answers_of(frames) == ["I see."]
    why = "Unable to access repo acme/site."
    assert notices_of(frames) == [
        f"The repository `acme/site` was not cloned. {why} The agent goes on without it."
    ]
    assert f"because it was not cloned: {why}" in str(asked[0].body["messages"][0]["content"])


async def in_sandbox(workspace: Path, script: str) -> str:
    """Run a script as an agent does, and return what it has written."""
    said = bytearray()

    def take(piece: bytes) -> bool:
        said.extend(piece)
        return True

    program = await PipedProgram.started(["bash", "-ec", script], workspace, home="/workspace")
    end = await program.ended(timeout_s=60, stdout=take, stderr=take)
    assert end.exit_code == 0, said.decode()
    return said.decode().strip()


COMMIT = """
cd site && git checkout -q -b fix/login && echo two > two.txt && git add two.txt
git -c user.name=Agent -c user.email=agent@example.org commit -q -m "Add two" && git rev-parse HEAD
"""


@pytest.mark.parametrize("host", [each for each in ProviderType if each in PROVIDERS], indirect=True)
async def test_a_branch_is_pushed_and_one_pull_request_opened_at_each_provider(
    make: Make, root: Path, host: GitHost
) -> None:
    host.make("site", {"README.md": "A site.\n"})
    talk = await make()
    await preparing.prepare(talk, Reports())
    workspace = await asyncio.to_thread(workspace_of, talk, root)
    commit = await in_sandbox(workspace, COMMIT)
    opened = await pushing.open_pull_request(talk, BranchWanted(title="Two", body="Why.", is_draft=True))
    assert git(host.bare("site"), "rev-parse", "fix/login") == commit
    assert await in_sandbox(workspace, "cd site && git rev-parse origin/fix/login") == commit
    assert opened.number == 1
    assert tool_facts.pull_request_in(opened.url) == 1
    [asked] = host.opened
    assert {"Why.", "Two", "Draft: Two"} & set(map(str, asked.values()))
    assert await pushing.open_pull_request(talk, BranchWanted(title="Two")) == opened
    assert len(host.opened) == 1
    assert besides(root) == []


async def test_a_branch_is_not_pushed_over_commits_of_others_nor_to_the_main_branch(
    make: Make, root: Path, host: GitHost
) -> None:
    tree = host.make("site", {"README.md": "A site.\n"})
    talk = await make()
    await preparing.prepare(talk, Reports())
    with pytest.raises(RepositoryFailed, match="is the main one, or the one to merge into"):
        await pushing.open_pull_request(talk, BranchWanted(title="Two"))
    with pytest.raises(RepositoryFailed, match="is the main one, or the one to merge into"):
        await pushing.open_pull_request(talk, BranchWanted(title="Two", branch="main", base="develop"))
    with pytest.raises(RepositoryFailed, match="has a null character"):
        await pushing.open_pull_request(talk, BranchWanted(title="Two", branch="a\0b"))
    with pytest.raises(RepositoryFailed, match="there is no branch none"):
        await pushing.open_pull_request(talk, BranchWanted(title="Two", branch="none"))
    await in_sandbox(await asyncio.to_thread(workspace_of, talk, root), COMMIT)
    git(tree, "checkout", "-q", "-b", "fix/login")
    git(tree, "commit", "-q", "--allow-empty", "-m", "Another")
    git(tree, "push", "-q", "origin", "fix/login")
    before = git(host.bare("site"), "rev-parse", "fix/login")
    with pytest.raises(RepositoryFailed, match="The provider refused the push of 'fix/login'"):
        await pushing.open_pull_request(talk, BranchWanted(title="Two"))
    assert git(host.bare("site"), "rev-parse", "fix/login") == before
    assert host.opened == []


async def test_a_pull_request_asks_although_nothing_else_does_and_its_number_follows(
    make: Make, alice: User, join: Join, host: GitHost
) -> None:
    host.make("site", {"README.md": "A site.\n"})
    talk = await make()
    wanted = ("create_pull_request", {"title": "Two"})
    answers = (calling(ran(COMMIT)), calling(wanted), completion(["Done."]))
    async with model(alice, *answers):
        client = await join(talk)
        await until_asked(client)
        assert host.opened == []
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert results_of(client.frames)[-1] == (
        "The pull request #1 is open: https://git.example/acme/site/pull/1"
    )
    assert (await Conversation.objects.aget()).pr_number == [1]


HOSTILE = """
cd site
cat > /workspace/evil <<'END'
#!/bin/sh
touch "$OUTSIDE" 2>/dev/null
{ env; cat /proc/*/environ /proc/*/cmdline; cat <&3; } >> /workspace/leak 2>/dev/null </dev/null
exit 0
END
sed -i "s|\\$OUTSIDE|%s|" /workspace/evil
chmod 755 /workspace/evil
for hook in pre-push reference-transaction post-checkout update pre-receive post-update; do
    mkdir -p .git/hooks .git/info
    cp /workspace/evil .git/hooks/$hook
done
git config core.fsmonitor /workspace/evil
git config core.hooksPath /workspace/site/.git/hooks
git config core.sshCommand /workspace/evil
git config core.alternateRefsCommand /workspace/evil
git config core.askPass /workspace/evil
git config credential.helper /workspace/evil
git config uploadpack.packObjectsHook /workspace/evil
git config filter.evil.clean /workspace/evil
git config filter.evil.smudge /workspace/evil
git config diff.evil.textconv /workspace/evil
git config url.http://127.0.0.1:9/.insteadOf http://
git config http.proxy http://127.0.0.1:9/
git config protocol.allow always
echo '* filter=evil diff=evil' > .git/info/attributes
printf '[submodule "x"]\\n\\tpath = x\\n\\turl = ext::/workspace/evil\\n' > .gitmodules
mkdir -p .git/objects/info && echo /etc > .git/objects/info/alternates
git -c core.fsmonitor=false -c core.hooksPath=/dev/null checkout -q -b evil
git -c core.fsmonitor=false -c core.hooksPath=/dev/null add .gitmodules
git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c user.name=A -c user.email=a@b.c commit -q -m Evil
"""


async def test_a_hostile_repository_runs_nothing_outside_and_gets_no_token(
    make: Make, root: Path, host: GitHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host.make("site", {"README.md": "A site.\n", ".gitattributes": "* filter=evil diff=evil\n"})
    talk = await make()
    await preparing.prepare(talk, Reports())
    workspace = await asyncio.to_thread(workspace_of, talk, root)
    await in_sandbox(workspace, HOSTILE % (tmp_path / "outside"))
    await pushing.open_pull_request(talk, BranchWanted(title="Evil"))
    assert git(host.bare("site"), "rev-parse", "evil")
    assert not (tmp_path / "outside").exists()
    assert await asyncio.to_thread(files_with_the_token, root) == []
    assert TOKEN not in caplog.text


async def test_while_git_works_no_process_shows_the_token(make: Make, root: Path, host: GitHost) -> None:
    host.make("site", {"README.md": "A site.\n"})
    host.holds = threading.Event()
    talk = await make()
    working = asyncio.create_task(preparing.prepare(talk, Reports()))
    try:
        await asyncio.to_thread(host.held.wait, 60)
        assert host.held.is_set()
        assert await asyncio.to_thread(shown_by_processes, "git-remote-http")
        assert not await asyncio.to_thread(shown_by_processes, TOKEN)
    finally:
        host.holds.set()
    await working
    assert await asyncio.to_thread(files_with_the_token, root) == []


def files_with_the_token(root: Path) -> list[Path]:
    return [each for each in root.rglob("*") if each.is_file() and TOKEN.encode() in each.read_bytes()]


def shown_by_processes(word: str) -> list[str]:
    """Return the command lines and environments of all processes that have a word."""
    found = []
    for name in ("cmdline", "environ"):
        for each in Path("/proc").glob(f"[0-9]*/{name}"):
            with suppress(OSError):
                text = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [text] if word in text else []
    return found


async def test_a_pause_ends_a_clone_with_nothing_left(make: Make, root: Path, host: GitHost) -> None:
    host.make("site", {"README.md": "A site.\n"})
    host.holds = threading.Event()
    talk = await make()
    working = asyncio.create_task(preparing.prepare(talk, Reports()))
    try:
        await asyncio.to_thread(host.held.wait, 60)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert besides(root) == []
        assert not sandboxes.running(f"{host.address}/acme/site.git")
    finally:
        host.holds.set()


async def test_with_accounts_git_asks_only_addresses_that_the_operator_allows(
    make: Make, host: GitHost, configured: Callable[..., None], alice: User
) -> None:
    host.make("site", {"README.md": "A site.\n"})
    talk = await make()
    # By a name, whose address git would otherwise look up once more.
    named = replace(host.token, host=f"http://localhost:{host.port}")
    await astore.call(user_settings.change_provider_tokens, alice.pk, {host.provider: named}, mcp_config=None)
    remote = GitRemote(url=f"http://localhost:{host.port}/acme/site.git", user="x", password=TOKEN)
    configured(auth="accounts", internal_addresses=())
    with pytest.raises(HostRefused):
        await way_of(httpx.URL(remote.url))
    configured(auth="accounts", internal_addresses=parse_all(["localhost"]))
    found = await way_of(httpx.URL(remote.url))
    assert set(found.addresses) <= {"127.0.0.1", "::1"}
    pinned = Access(remote=remote, way=ProgramWay(addresses=("127.0.0.1",)))
    async with bare.opened(talk, fills=True) as repository:
        assert b"refs/heads/main" in await repository.git.run("ls-remote", remote.url, access=pinned)
        # Nothing listens there: the pin holds, whatever the name means.
        elsewhere = Access(remote=remote, way=ProgramWay(addresses=("127.0.0.2",)))
        with pytest.raises(RepositoryFailed, match="Failed to connect"):
            await repository.git.run("ls-remote", remote.url, access=elsewhere)
        # Without access to a server, git asks none.
        with pytest.raises(RepositoryFailed, match="transport 'http' not allowed"):
            await repository.git.run("ls-remote", remote.url)


async def test_a_redirect_gets_no_token(make: Make, host: GitHost, tmp_path: Path) -> None:
    host.make("site", {"README.md": "A site.\n"})
    talk = await make()
    other = tmp_path / "other"
    other.mkdir()
    with GitHost(ProviderType.GITHUB, "another", other) as elsewhere:
        host.redirects = f"http://{elsewhere.address}"
        with pytest.raises(RepositoryFailed, match="Git failed"):
            await preparing.prepare(talk, Reports())
        assert elsewhere.fetched == []


async def test_a_repository_whose_tree_would_write_the_configuration_of_git_is_refused(
    make: Make, root: Path, host: GitHost
) -> None:
    tree = host.make("site", {"README.md": "A site.\n"})
    blob = git(tree, "hash-object", "-w", "README.md")
    (tree / "entries").write_text(f"100644 blob {blob}\tconfig\n")
    inner = git(tree, "mktree", stdin=tree / "entries")
    (tree / "entries").write_text(f"040000 tree {inner}\t.git\n")
    commit = git(tree, "commit-tree", "-m", "Evil", git(tree, "mktree", stdin=tree / "entries"))
    git(tree, "push", "-q", "-f", "origin", f"{commit}:refs/heads/main")
    talk = await make()
    with pytest.raises(RepositoryFailed, match="Git failed"):
        await preparing.prepare(talk, Reports())
    assert await asyncio.to_thread(os.listdir, await asyncio.to_thread(workspace_of, talk, root)) == []


async def test_submodules_are_left_out(make: Make, root: Path, host: GitHost) -> None:
    tree = host.make("site", {".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = https://192.0.2.1/x\n'})
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{git(tree, 'rev-parse', 'HEAD')},x")
    git(tree, "commit", "-q", "-m", "With a submodule")
    git(tree, "push", "-q", "origin", "main")
    talk = await make()
    await preparing.prepare(talk, Reports())
    workspace = await asyncio.to_thread(workspace_of, talk, root)
    assert await asyncio.to_thread(os.listdir, workspace / "site" / "x") == []


async def test_a_purge_removes_what_a_killed_server_has_left_beside_a_workspace(
    make: Make, root: Path
) -> None:
    talk = await make()
    workspace, beside = await astore.change(records.made_beside, talk)
    (beside / "pack").write_text("A part.")
    while await astore.change(records.remove_some, talk, 100) is not None:
        pass
    assert not workspace.exists()
    assert not beside.exists()
