"""What both wires show of git in a workspace, also of repositories that mean harm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.identity.conversation_keys import key_of
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.workspace_git import program
from sessions_app.workspaces import records
from tests.support.people.commands import require_bubblewrap
from tests.support.wires.app_face import CONVERSATIONS as APP_CONVERSATIONS
from tests.support.wires.v1 import AGENT, HEX, ID, SHARED, known

pytestmark = pytest.mark.one_engine

Configured = Callable[..., None]

V0 = "/api/conversations/talk/git"
V1 = f"{AGENT}/{ID}/git"
PROJECT = "/workspace/project"


@pytest.fixture
def sandboxed(tmp_path: Path, configured: Configured) -> None:
    configured(workspaces=tmp_path / "workspaces", sandbox=SandboxName.AUTO)
    require_bubblewrap()


@pytest.fixture
def v0(alice: User, sandboxed: None) -> Path:
    """The workspace of the V0 conversation `talk`."""
    return records.directory_of(creation.create(alice, conversation_id="talk", version=Version.V0))


@pytest.fixture
def v1(alice: User, sandboxed: None) -> Path:
    """The workspace of a V1 conversation."""
    return records.directory_of(agent_setups.create(alice, NewSetup(), conversation_id=HEX))


def git(directory: Path, *arguments: str) -> str:
    """Run git in a repository that the test itself has made."""
    environment = {
        **os.environ,
        **{
            f"GIT_{who}_{what}": f"{what}@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    options = ("-c", "safe.directory=*", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always")
    run = subprocess.run(
        ["git", *options, *arguments],
        cwd=directory,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout.strip()


def repository(directory: Path) -> Path:
    """Make a repository with a commit and a changed, a new, a removed and a renamed file."""
    directory.mkdir(exist_ok=True)
    git(directory, "init")
    for name in ("a.txt", "gone.txt", "old name.txt"):
        (directory / name).write_text(f"  {name}\nsecond\n\n")
    git(directory, "add", ".")
    git(directory, "commit", "-m", "first")
    (directory / "a.txt").write_text("  a.txt\nchanged\n\n")
    (directory / "gone.txt").unlink()
    (directory / "new.txt").write_text("new\n")
    git(directory, "mv", "old name.txt", "größe.txt")
    return directory


def write_all(directory: Path, names: Sequence[str]) -> None:
    for name in names:
        (directory / name).write_text("x")


def names_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()}


async def changes(rest: httpx.AsyncClient, base: str, **query: Any) -> list[tuple[str, str]]:
    return [(each["status"], each["path"]) for each in known(await rest.get(f"{base}/changes", params=query))]


V1_CHANGES = [
    ("UPDATED", "a.txt"),
    ("DELETED", "gone.txt"),
    ("ADDED", "größe.txt"),
    ("ADDED", "new.txt"),
    ("DELETED", "old name.txt"),
]


async def test_changes_are_listed_by_every_form_of_the_v1_wire(
    v1: Path, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    repository(v1)
    for base in (V1, "/agent/api/git", f"{APP_CONVERSATIONS}/{ID}/git"):
        with subtests.test(base):
            assert await changes(rest, base, path=PROJECT) == sorted(V1_CHANGES, key=lambda each: each[1])
    for address in ("/api/git/changes/%2Fworkspace%2Fproject", "/agent/api/git/changes//workspace/project"):
        assert len(known(await rest.get(address))) == 5, address
    both = {"modified": "  a.txt\nchanged\n", "original": "  a.txt\nsecond\n"}
    for address in (
        f"{V1}/diff?path={PROJECT}/a.txt",
        "/api/git/diff/%2Fworkspace%2Fproject%2Fa.txt",
        f"/agent/api/git/diff?path={PROJECT}/a.txt",
        f"{APP_CONVERSATIONS}/{ID}/git/diff?path={PROJECT}/a.txt",
    ):
        assert known(await rest.get(address)) == both, address


async def test_a_file_is_shown_before_and_after_whatever_has_happened_to_it(
    v1: Path, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    repository(v1)
    (v1 / "binary").write_bytes(b"\0\xff")
    expected = {
        "gone.txt": ("  gone.txt\nsecond\n", ""),
        "new.txt": ("", "new"),
        "größe.txt": ("", "  old name.txt\nsecond\n"),
        "binary": ("", ""),
    }
    for name, (original, modified) in expected.items():
        with subtests.test(name):
            found = known(await rest.get(f"{V1}/diff", params={"path": f"{PROJECT}/{name}"}))
            assert (found["original"], found["modified"]) == (original, modified)
    for path, ref, status in (
        ("none", None, 400),
        ("large", None, 400),
        ("a.txt", "no-such-branch", 400),
        ("a.txt", "--output=x", 400),
        ("../../../etc/passwd", None, 400),
    ):
        (v1 / "large").write_bytes(b"x" * (1024 * 1024 + 1))
        query = {"path": f"{PROJECT}/{path}"} | ({"ref": ref} if ref else {})
        with subtests.test(path=path, ref=ref):
            assert known(await rest.get(f"{V1}/diff", params=query), status)["detail"]
    known(await rest.get(f"{V1}/diff"), 422)


async def test_v0_lists_changes_in_its_own_words(v0: Path, rest: httpx.AsyncClient) -> None:
    repository(v0)
    # Without a remote repository this wire compares with nothing.
    assert await changes(rest, V0) == [("A", "a.txt"), ("A", "größe.txt"), ("A", "new.txt")]
    remote = git(v0, "clone", "--bare", ".", "../remote.git")
    git(v0, "remote", "add", "origin", "../remote.git")
    git(v0, "fetch", "origin")
    assert remote == ""
    assert await changes(rest, V0) == [
        ("M", "a.txt"),
        ("D", "gone.txt"),
        ("A", "größe.txt"),
        ("A", "new.txt"),
        ("D", "old name.txt"),
    ]
    for path in ("a.txt", "/workspace/a.txt"):
        found = known(await rest.get(f"{V0}/diff", params={"path": path}))
        assert found == {"modified": "  a.txt\nchanged\n", "original": "  a.txt\nsecond\n"}
    (v0 / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    for path, status in (("none", 404), ("large", 413), ("/etc/passwd", 400)):
        refused = known(await rest.get(f"{V0}/diff", params={"path": path}), status)
        assert refused["error"].startswith("Error getting diff: "), path


async def test_changes_are_measured_as_the_newest_agent_server_does(
    v1: Path, rest: httpx.AsyncClient, tmp_path: Path
) -> None:
    async def listed(**query: Any) -> list[str]:
        return [f"{status[0]} {path}" for status, path in await changes(rest, V1, path=PROJECT, **query)]

    git(v1, "init")
    (v1 / "a.txt").write_text("a")
    assert await listed() == ["A a.txt"]  # nothing is committed yet
    git(v1, "add", ".")
    assert await listed(ref="HEAD") == ["A a.txt"]
    git(v1, "commit", "-m", "first")
    assert await listed() == []
    git(v1, "checkout", "-b", "work")
    (v1 / "b.txt").write_text("b")
    git(v1, "add", ".")
    git(v1, "commit", "-m", "second")
    # What a branch adds to the one that it comes from stays visible.
    assert await listed() == ["A b.txt"]
    assert await listed(ref="HEAD") == []
    git(v1, "checkout", "--detach")
    assert await listed() == ["A b.txt"]
    git(v1, "checkout", "work")
    git(v1, "clone", "--bare", ".", str(tmp_path / "remote.git"))
    git(v1, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(v1, "fetch", "origin")
    git(v1, "remote", "set-head", "origin", "main")
    # Also of one that was pushed whole, until there is more.
    assert await listed() == ["A b.txt"]
    (v1 / "b.txt").write_text("more")
    assert await listed() == ["U b.txt"]
    assert await listed(ref=git(v1, "rev-parse", "main")) == ["A b.txt"]


async def test_repositories_directly_in_the_directory_are_listed_with_their_names(
    v1: Path, rest: httpx.AsyncClient
) -> None:
    repository(v1 / "site")
    prefixed = [(status, f"site/{path}") for status, path in sorted(V1_CHANGES, key=lambda each: each[1])]
    assert await changes(rest, V1, path=PROJECT) == prefixed
    git(v1, "init")
    (v1 / "site-notes.txt").write_text("notes")
    assert await changes(rest, V1, path=PROJECT) == [("ADDED", "site-notes.txt"), *prefixed]
    found = known(await rest.get(f"{V1}/diff", params={"path": f"{PROJECT}/site/a.txt"}))
    assert found["original"] == "  a.txt\nsecond\n"
    (v1 / "site" / "below").mkdir()
    (v1 / "site" / "below" / "x").write_text("x")
    assert await changes(rest, V1, path=f"{PROJECT}/site/below") == [("ADDED", "x")]


async def test_names_of_any_bytes_are_listed(v1: Path, rest: httpx.AsyncClient) -> None:
    git(v1, "init")
    names = ["line\nend", "tab\t", 'quote"', "\udcff", "größe", " space ", "-option"]
    write_all(v1, names)
    assert [path for _, path in await changes(rest, V1, path=PROJECT)] == sorted(names)
    for name in ("line\nend", " space ", "-option"):
        found = known(await rest.get(f"{V1}/diff", params={"path": f"{PROJECT}/{name}"}))
        assert found["modified"] == "x"


async def test_where_there_is_no_repository_nothing_has_changed(
    v0: Path, v1: Path, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for directory in (v0, v1):
        (directory / "a.txt").write_text("a")
    broken = v1 / "broken"
    broken.mkdir()
    (broken / ".git").write_text("gitdir: /nowhere\n")
    assert await changes(rest, V0) == []
    assert known(await rest.get(f"{V0}/diff?path=a.txt"), 404) == {"error": "Not a git repository"}
    for path in (PROJECT, f"{PROJECT}/none", f"{PROJECT}/a.txt", f"{PROJECT}/broken"):
        with subtests.test(path):
            assert await changes(rest, V1, path=path) == []
            assert known(await rest.get(f"{V1}/commits", params={"path": path})) == {
                "commits": [],
                "has_more": False,
            }
    nothing = {"modified": None, "original": None}
    assert known(await rest.get(f"{V1}/diff", params={"path": f"{PROJECT}/a.txt"})) == nothing


async def test_commits_are_listed_and_each_shows_what_it_has_changed(
    v1: Path, rest: httpx.AsyncClient
) -> None:
    repository(v1)
    git(v1, "add", ".")
    git(v1, "commit", "-m", "second: größer\n\nbody")
    page = known(await rest.get(f"{V1}/commits", params={"path": PROJECT, "limit": 1}))
    (commit,) = page["commits"]
    assert (page["has_more"], commit["subject"], commit["author"]) == (
        True,
        "second: größer",
        "NAME@example.org",
    )
    assert commit["sha"].startswith(commit["short_sha"])
    for base in (V1, "/agent/api/git"):
        answer = await rest.get(f"{base}/commits/{commit['sha']}/changes", params={"path": PROJECT})
        assert {each["path"] for each in known(answer)} == {path for _, path in V1_CHANGES}
    query = {"path": f"{PROJECT}/gone.txt", "commit": commit["short_sha"]}
    assert known(await rest.get(f"{V1}/diff", params=query)) == {
        "original": "  gone.txt\nsecond\n",
        "modified": "",
    }
    known(await rest.get(f"{V1}/diff", params={**query, "ref": "HEAD"}), 400)
    known(await rest.get(f"{V1}/diff", params={**query, "commit": "--x"}), 422)
    known(await rest.get(f"{V1}/commits/abcdef12/changes", params={"path": PROJECT}), 400)
    known(await rest.get(f"{V1}/commits/xyz/changes", params={"path": PROJECT}), 422)
    known(await rest.get(f"{V1}/commits", params={"path": PROJECT, "limit": 201}), 422)


async def test_a_repository_runs_nothing_outside_the_sandbox_and_little_inside(
    v1: Path, rest: httpx.AsyncClient, tmp_path: Path
) -> None:
    repository(v1)
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)

    def leaves(name: str) -> str:
        return f"touch {outside}/{name}; touch {PROJECT}/{name}; cat"

    for setting, name in (
        ("core.fsmonitor", "fsmonitor"),
        ("diff.external", "external"),
        ("diff.ours.command", "driver"),
        ("diff.ours.textconv", "textconv"),
        ("filter.ours.clean", "clean"),
        ("filter.ours.smudge", "smudge"),
        ("core.pager", "pager"),
        ("core.sshCommand", "ssh"),
        ("core.alternateRefsCommand", "alternate"),
        ("gpg.program", "gpg"),
        ("alias.diff", "alias"),
    ):
        git(v1, "config", setting, f"!{leaves(name)}" if name == "alias" else leaves(name))
    git(v1, "config", "log.showSignature", "true")
    git(v1, "config", "core.hooksPath", "hooks")
    git(v1, "config", "url.ext::sh.insteadOf", "https://")
    (v1 / ".gitattributes").write_text("* diff=ours filter=ours\n")
    (v1 / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {leaves('home')}\n")
    (v1 / "hooks").mkdir()
    for hook in ("fsmonitor-watchman", "post-index-change", "pre-auto-gc"):
        (v1 / "hooks" / hook).write_text(f"#!/bin/sh\n{leaves(hook)}\n")
        (v1 / "hooks" / hook).chmod(0o755)
    assert ("UPDATED", "a.txt") in await changes(rest, V1, path=PROJECT)
    known(await rest.get(f"{V1}/diff", params={"path": f"{PROJECT}/a.txt"}))
    known(await rest.get(f"{V1}/commits", params={"path": PROJECT}))
    assert names_in(outside) == set()
    # A filter makes what git compares, so it runs, in the sandbox.
    run = {"fsmonitor", "external", "driver", "textconv", "pager", "ssh", "gpg", "alias", "home"}
    assert run.isdisjoint(names_in(v1))


def name_what_is_outside(directory: Path, outside: Path) -> None:
    """Make a repository that takes its objects, a branch, a link and a submodule from another one."""
    head = git(outside, "rev-parse", "HEAD")
    git(directory, "init")
    (directory / "own.txt").write_text("own")
    (directory / ".git" / "objects" / "info" / "alternates").write_text(f"{outside}/.git/objects\n")
    (directory / ".git" / "refs" / "heads" / "main").write_text(f"{head}\n")
    (directory / "link").symlink_to(outside / "a.txt")
    (directory / ".gitmodules").write_text(f'[submodule "x"]\n\tpath = x\n\turl = {outside}\n')
    (directory / "elsewhere").mkdir()
    (directory / "elsewhere" / ".git").write_text(f"gitdir: {outside}/.git\n")


async def test_what_is_outside_is_not_shown_by_a_repository_that_names_it(
    v1: Path, rest: httpx.AsyncClient, tmp_path: Path
) -> None:
    name_what_is_outside(v1, repository(tmp_path / "outside"))
    listed = {path for _, path in await changes(rest, V1, path=PROJECT)}
    assert listed == {".gitmodules", "link", "own.txt"}
    page = await rest.get(f"{V1}/commits", params={"path": PROJECT})
    assert "first" not in page.text
    found = await rest.get(f"{V1}/diff", params={"path": f"{PROJECT}/link"})
    assert "changed" not in found.text
    assert await changes(rest, V1, path=f"{PROJECT}/elsewhere") == []


async def test_at_an_address_of_both_wires_the_request_decides(v1: Path, rest: httpx.AsyncClient) -> None:
    repository(v1)
    shared = f"{SHARED}/{ID}/git/changes"
    assert {each["status"] for each in known(await rest.get(shared))} == {"A"}
    key = await astore.call(lambda: key_of(Conversation.objects.get(public_id=HEX).ref))
    for headers in (
        {"x-session-api-key": key},
        {"content-type": "application/json", "sec-fetch-mode": "cors"},
    ):
        found = known(await rest.get(shared, params={"path": PROJECT}, headers=headers))
        assert {each["status"] for each in found} == {"ADDED", "DELETED", "UPDATED"}


async def test_a_filter_that_never_ends_is_ended_and_told(
    v1: Path, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(v1)
    git(v1, "config", "filter.ours.clean", "sleep 600")
    (v1 / ".gitattributes").write_text("* filter=ours\n")
    monkeypatch.setattr(program.GitBounds, "timeout_s", 1.0)
    refused = known(await rest.get(f"{V1}/changes", params={"path": PROJECT}), 400)
    assert refused["detail"].startswith("Git took longer than 1 s.")


async def test_without_a_sandbox_a_repository_is_told_not_to_be_shown(
    v0: Path, v1: Path, rest: httpx.AsyncClient, configured: Configured
) -> None:
    for directory in (v0, v1):
        repository(directory)
    configured(sandbox=SandboxName.OFF)
    sentence = "There is no terminal: CONVSERVER_SANDBOX is off."
    assert known(await rest.get(f"{V0}/changes"), 400)["error"].startswith(sentence)
    assert known(await rest.get(f"{V1}/changes", params={"path": PROJECT}), 400)["detail"].startswith(
        sentence
    )
    configured(sandbox=SandboxName.NONE)
    refused = known(await rest.get(f"{V1}/changes", params={"path": PROJECT}), 400)
    assert refused["detail"].startswith("What git says is not shown without a sandbox")
