"""Conversations that work in directories of the user's own: chosen by each door, and left as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.exceptions import StoreUnavailable
from conversations.models import Conversation, ConversationRef
from conversations.store import creation, purging
from convserver import configuration
from convserver.quotas import Quotas
from convserver.variables import ConfigurationError
from sessions_app.models import ApiToken, Grant, Workspace
from sessions_app.retention import places
from sessions_app.sandbox.base import NoSandbox, SandboxName
from sessions_app.terminals.terminal import Terminal
from sessions_app.workspaces import chosen, records, uploads
from sessions_app.workspaces.beneath import PathRefused
from tests.conftest import once
from tests.support.people.commands import OTHER, commander
from tests.support.servers import sandboxes
from tests.support.wires.v1 import AGENT

pytestmark = once

LONG_S = 60.0


@pytest.fixture
def root(tmp_path: Path, configured: Callable[..., None]) -> Path:
    """A directory of alice's with a project, which belongs to the account that her commands run as."""
    root = tmp_path / "projects"
    (root / "site").mkdir(parents=True)
    (root / "site" / "index.html").write_text("<p>Hello</p>")
    give(root)
    configured(workspaces=tmp_path / "workspaces", workspace_roots=(root,))
    return root


@pytest.fixture
def browser(alice: User) -> Browser:
    return Browser(headers={"host": "localhost", "referer": "http://localhost/"})


def give(directory: Path) -> None:
    """Let a directory belong to who uses it, as root only can; tests run as either."""
    if os.geteuid() == 0:
        for each in (directory, *directory.rglob("*")):
            os.chown(each, *OTHER, follow_symlinks=False)
        for above in directory.parents:
            if above.stat().st_uid == 0 and str(above).startswith("/tmp/"):
                above.chmod(0o755)


def owner() -> int:
    return OTHER.uid if os.geteuid() == 0 else os.geteuid()


def working_in(user: User, directory: Path) -> ConversationRef:
    conversation = creation.create(user)
    chosen.choose(conversation, str(directory))
    return conversation


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


async def output_of(conversation: ConversationRef, command: str) -> str:
    terminal = await Terminal.opened(conversation)
    try:
        return (await terminal.run(command, timeout_s=LONG_S, on_output=lambda _: None)).output
    finally:
        await terminal.close()


def test_every_door_lets_a_new_conversation_work_in_a_directory_of_the_users_own(
    root: Path, browser: Browser, alice: User
) -> None:
    site = str(root / "site")
    page = browser.get("/").content.decode()
    assert f'<option value="{site}">' in page
    assert f'<option value="{root}">' in page
    form = {"text": "Begin.", "id": "0c7b2f3e9d1a4b5c8e6f7a8b9c0d1e2f", "directory": site}
    assert browser.post("/begin", form).status_code == 302
    native = browser.post("/api/native/conversations", {"id": "one", "directory": site}, "application/json")
    assert native.status_code == 201
    body = {"workspace": {"working_dir": site}, "agent": None}
    started = browser.post(f"{AGENT}", body, "application/json")
    assert started.status_code == 201, started.content
    for each in Conversation.objects.all():
        assert chosen.directory_of(each.ref) == site
        shown = browser.get(f"/c/{each.public_id}/files").content.decode()
        assert site in shown
        assert "index.html" in shown
    assert Conversation.objects.count() == 3


def test_a_client_is_shown_the_directories_that_a_start_may_name(
    root: Path, browser: Browser, alice: User
) -> None:
    (root / ".hidden").mkdir()
    directories = browser.get("/agent/api/workspaces").json()["workspaces"]
    site = str(root / "site")
    assert [each["path"] for each in directories] == [str(root), site]
    assert directories[1] == {"id": site, "name": "site", "path": site}
    one = creation.create(alice)
    _, token = ApiToken.issue(alice.pk, "of one", Grant(conversation=one))
    key = Browser(headers={"host": "localhost", "authorization": f"Bearer {token}"})
    assert key.get("/agent/api/workspaces").status_code == 403


def test_a_directory_that_is_not_offered_is_refused_and_means_nothing_to_a_start_of_v1(
    root: Path, browser: Browser, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "other").mkdir()
    (root / "link").symlink_to(tmp_path / "other")
    refused = [str(tmp_path), str(tmp_path / "other"), f"{root}/link", f"{root}/../other", f"{root}/none"]
    for path in [*refused, "site", f"{root}/site/index.html", f"{root}\0", f"{root}/\ud800"]:
        with subtests.test(path=repr(path)):
            said = browser.post("/api/native/conversations", {"directory": path}, "application/json")
            assert said.status_code == 400
            body = {"workspace": {"working_dir": path}, "agent": None}
            started = browser.post(f"{AGENT}", body, "application/json")
            assert started.status_code in (201, 422), started.content
    said = browser.post("/begin", {"text": "Begin.", "id": "0" * 32, "directory": str(tmp_path)})
    assert said.status_code == 400
    assert "is no directory in which conversations may work" in said.content.decode()
    assert not Workspace.objects.exclude(users_directory="").exists()
    # A link that stays below the root leads to a directory that is named without it.
    (root / "near").symlink_to("site")
    assert chosen.found(f"{root}/near") == root / "site"
    assert root / "near" not in chosen.offered()


def test_a_purge_and_quotas_leave_the_files_of_the_user_alone(
    root: Path, alice: User, configured: Callable[..., None]
) -> None:
    configured(workspace_max_files=4, workspace_max_mb=1, quotas=Quotas())
    conversation = working_in(alice, root / "site")
    other = working_in(alice, root / "site")
    for number in range(4):
        uploads.put(conversation, f"assets/{number}", b"content")
    with records.opened(other) as tree:
        assert tree is not None
        assert tree.names("assets", 10) == ["0", "1", "2", "3"]
    assert {each.stat().st_uid for each in (root / "site").rglob("*")} == {owner()}
    assert records.nearly_full(conversation) == ""
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason="asked for"
    )
    assert begun is not None
    while places.remove_some(conversation) is not None:
        pass
    assert names(root / "site") == ["assets", "index.html"]
    assert names(root / "site" / "assets") == ["0", "1", "2", "3"]


def test_commands_change_the_users_files_as_their_owner_and_leave_nothing_else(
    root: Path, alice: User, configured: Callable[..., None], tmp_path: Path
) -> None:
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")
    conversation = working_in(alice, root / "site")
    configured(workspace_max_files=1)
    said = asyncio.run(output_of(conversation, "pwd; cat index.html; touch a b c; seq 100000"))
    assert said.startswith((f"{root}/site\n<p>Hello</p>", "/workspace\n<p>Hello</p>"))
    assert "It could not be put into a file: the workspace is a directory of the user's own." in said
    assert names(root / "site") == ["a", "b", "c", "index.html"]
    assert {each.stat().st_uid for each in (root / "site").iterdir()} == {owner()}


def test_what_takes_the_place_of_a_directory_is_not_opened(
    root: Path, alice: User, configured: Callable[..., None], tmp_path: Path
) -> None:
    conversation = working_in(alice, root / "site")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    (root / "site").rename(root / "before")
    (root / "site").symlink_to(tmp_path / "private")
    with pytest.raises(StoreUnavailable, match="cannot be used"), records.opened(conversation):
        pass
    with pytest.raises(StoreUnavailable):
        uploads.put(conversation, "new", b"new")
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")
    with pytest.raises(StoreUnavailable):
        asyncio.run(output_of(conversation, "cat key"))
    assert names(tmp_path / "private") == ["key"]
    # An operator who takes the root away takes the directories away.
    configured(workspace_roots=())
    with pytest.raises(StoreUnavailable), records.opened(conversation):
        pass


def test_no_command_runs_as_root(
    root: Path, alice: User, configured: Callable[..., None], tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has directories of root")
    os.chown(root / "site", 0, 0)
    conversation = working_in(alice, root / "site")
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")
    with pytest.raises(NoSandbox, match="belongs to root"):
        asyncio.run(output_of(conversation, "id"))
    assert (root / "site").stat().st_uid == 0


def test_roots_are_for_local_mode_and_apart_from_the_servers_own_files(tmp_path: Path) -> None:
    def read(**given: str) -> Any:
        variables = {"CONVSERVER_DATA_DIR": str(tmp_path / "data"), **given}
        return configuration.read(variables).workspace_roots

    (tmp_path / "data" / "inside").mkdir(parents=True)
    (tmp_path / "one").mkdir()
    assert read() == ()
    assert read(CONVSERVER_WORKSPACE_ROOTS=f"{tmp_path}/one, {tmp_path}/one/") == (tmp_path / "one",)
    # What the server runs, and its own code, could be replaced there.
    programs = (Path(sys.prefix), Path(sys.executable).parent, Path(__file__).parents[2])
    own = (tmp_path, tmp_path / "data", tmp_path / "data" / "inside", tmp_path / "none", "/")
    for wrong in (*own, *programs):
        with pytest.raises(ConfigurationError, match="CONVSERVER_WORKSPACE_ROOTS"):
            read(CONVSERVER_WORKSPACE_ROOTS=str(wrong))
    with pytest.raises(ConfigurationError, match="local mode only"):
        read(
            CONVSERVER_WORKSPACE_ROOTS=f"{tmp_path}/one",
            CONVSERVER_AUTH="accounts",
            CONVSERVER_ALLOWED_HOSTS="example.org",
            SECRET_KEY="k" * 40,
        )


def test_a_path_is_refused_where_there_are_no_roots(alice: User) -> None:
    with pytest.raises(PathRefused, match="This server has none"):
        chosen.choose(creation.create(alice), "/tmp")


def test_no_program_begins_where_the_sandbox_shows_another_directory() -> None:
    with commander(None) as agent:
        about = agent.workspace.stat()
        for number, is_begun in ((about.st_ino, True), (about.st_ino + 1, False)):
            began = partial(
                agent.sandbox.start,
                ["/bin/sh", "-c", ": >begun"],
                agent.workspace,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                identity=(about.st_dev, number),
            )
            with nullcontext() if is_begun else pytest.raises(NoSandbox, match="was replaced"):
                assert asyncio.run(began().wait()) == 0
            assert (agent.workspace / "begun").exists() is is_begun
            (agent.workspace / "begun").unlink(missing_ok=True)
