"""Commands that clients run in a workspace by the V1 wire: events, ends, bounds, and whose they are."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.identity.conversation_keys import key_of
from sessions_app.models import ApiToken, Grant, Scope
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.shell_commands import kept
from sessions_app.shell_commands.kept import CommandBounds, KeptCommands
from sessions_app.workspaces import records
from tests.conftest import Dial
from tests.doors.test_access import bearer
from tests.support.people.clients import WAIT_S
from tests.support.people.commands import require_bubblewrap
from tests.support.people.scripted_agent import until_here
from tests.support.wires.v1 import AGENT, HEX, ID, NONE, known
from tests.support.wires.v1_socket import auth, until_kind

pytestmark = pytest.mark.one_engine

Configured = Callable[..., None]

ONE = f"{AGENT}/{ID}/bash"
ALL = "/agent/api/bash"
SOCKET = "/sockets/bash-events"


@pytest.fixture
async def talk(alice: User, tmp_path: Path, configured: Configured) -> AsyncIterator[ConversationRef]:
    """A V1 conversation of alice's, whose commands run in a sandbox."""
    configured(workspaces=tmp_path / "workspaces", sandbox=SandboxName.AUTO)
    require_bubblewrap()
    workspace = {"kind": "LocalWorkspace", "working_dir": "/projects/site"}
    setup = NewSetup(workspace=workspace)
    yield await astore.call(lambda: agent_setups.create(alice, setup, conversation_id=HEX))
    await kept.close()


@pytest.fixture
def key(talk: ConversationRef) -> dict[str, str]:
    """The headers with the key that opens `talk`."""
    return {"x-session-api-key": key_of(talk)}


async def executed(rest: httpx.AsyncClient, command: str, **members: Any) -> dict[str, Any]:
    answer = await rest.post(f"{ONE}/execute_bash_command", json={"command": command, **members})
    found: dict[str, Any] = known(answer)
    return found


async def searched(rest: httpx.AsyncClient, base: str = ONE, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = known(await rest.get(f"{base}/bash_events/search", params=query))["items"]
    return found


async def ended(rest: httpx.AsyncClient, command_id: str, base: str = ONE) -> list[dict[str, Any]]:
    """Return the outputs of a command, as clients wait for the last one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await searched(rest, base, command_id__eq=command_id)
            if found and found[-1]["exit_code"] is not None:
                return found


def processes_with(mark: str) -> list[str]:
    """Return the command lines of all processes of this machine that have these words."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if mark in line]


async def gone(mark: str) -> None:
    """Wait until no process has these words in its command line."""
    await until_here(lambda: not processes_with(mark))


async def there(mark: str) -> None:
    await until_here(lambda: bool(processes_with(mark)))


async def test_a_command_is_answered_with_its_output_and_both_are_events(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    output = await executed(rest, "echo out; echo err >&2; exit 3", timeout=30)
    assert set(output) == {
        *("kind", "id", "timestamp", "command_id", "order", "exit_code", "stdout", "stderr"),
    }
    assert {name: output[name] for name in ("kind", "order", "exit_code", "stdout", "stderr")} == {
        "kind": "BashOutput",
        "order": 0,
        "exit_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
    }
    command = known(await rest.get(f"{ONE}/bash_events/{output['command_id']}"))
    assert command["timestamp"].endswith("Z")
    del command["timestamp"]
    assert command == {
        "kind": "BashCommand",
        "id": output["command_id"],
        "command": "echo out; echo err >&2; exit 3",
        "cwd": "/projects/site",
        "timeout": 30,
    }
    assert [each["id"] for each in await searched(rest)] == [command["id"], output["id"]]
    batch = await rest.get(f"{ONE}/bash_events/", params={"event_ids": [output["id"], "none", command["id"]]})
    assert [each and each["kind"] for each in known(batch)] == ["BashOutput", None, "BashCommand"]
    assert known(await rest.get(f"{ONE}/bash_events/none"), 404)["detail"].startswith("This process knows no")


async def test_a_command_is_started_followed_and_ended_as_the_sdk_does(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    body = {"command": "echo one; echo two", "timeout": 30}
    command = known(await rest.post("/api/bash/start_bash_command", json=body, headers=key))
    query = {
        "kind__eq": "BashOutput",
        "sort_order": "TIMESTAMP",
        "limit": 100,
        "command_id__eq": command["id"],
    }
    async with asyncio.timeout(WAIT_S):
        while True:
            page = await rest.get("/api/bash/bash_events/search", params=query, headers=key)
            if (items := known(page)["items"]) and items[-1]["exit_code"] is not None:
                break
    assert [(each["order"], each["stdout"]) for each in items] == [(0, "one\ntwo\n")]
    after = await rest.get("/api/bash/bash_events/search", params={**query, "order__gt": 0}, headers=key)
    assert known(after)["items"] == []
    # The key names the conversation, so both forms have the same events.
    assert await searched(rest, command_id__eq=command["id"]) == items


async def test_events_come_in_pages_of_each_order_and_by_kind_and_time(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for number in range(3):
        await executed(rest, f"echo {number}")
    commands = await searched(rest, kind__eq="BashCommand")
    assert [each["command"] for each in commands] == ["echo 0", "echo 1", "echo 2"]
    query: dict[str, Any] = {"kind__eq": "BashCommand", "sort_order": "TIMESTAMP_DESC", "limit": 2}
    first = known(await rest.get(f"{ONE}/bash_events/search", params=query))
    assert [each["command"] for each in first["items"]] == ["echo 2", "echo 1"]
    query["page_id"] = first["next_page_id"]
    second = known(await rest.get(f"{ONE}/bash_events/search", params=query))
    assert ([each["command"] for each in second["items"]], second["next_page_id"]) == (["echo 0"], None)
    middle = commands[1]["timestamp"]
    later = await searched(rest, kind__eq="BashCommand", timestamp__gte=middle)
    earlier = await searched(rest, kind__eq="BashCommand", timestamp__lt=middle)
    assert [len(later), len(earlier)] == [2, 1]
    for wrong in ({"limit": 0}, {"limit": 101}, {"kind__eq": "BashError"}, {"page_id": "none"}):
        known(await rest.get(f"{ONE}/bash_events/search", params=wrong), 422)


async def test_a_command_runs_in_the_workspace_and_nowhere_outside(
    talk: ConversationRef, rest: httpx.AsyncClient, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    assert (await executed(rest, "pwd; mkdir -p sub; echo kept > sub/a.txt"))["stdout"] == "/projects/site\n"
    (directory,) = filter(Path.is_dir, (tmp_path / "workspaces").iterdir())
    assert (directory / "sub" / "a.txt").read_text() == "kept\n"
    for cwd in ("/projects/site/sub", "sub", "/workspace/project/sub"):
        with subtests.test(cwd=cwd):
            assert (await executed(rest, "pwd; cat a.txt", cwd=cwd))["stdout"] == "/projects/site/sub\nkept\n"
    missing = await executed(rest, "pwd", cwd="/projects/site/none")
    assert (missing["exit_code"], missing["stdout"]) == (-1, None)
    assert missing["stderr"].startswith("Error executing command: There is no")
    for cwd in ("/etc", "/projects/site/../..", "../.."):
        refused = await rest.post(f"{ONE}/execute_bash_command", json={"command": "pwd", "cwd": cwd})
        assert known(refused, 422)["detail"].startswith("cwd must be inside the conversation workspace"), cwd
    secret = tmp_path / "outside.txt"
    secret.write_text("secret")
    output = await executed(rest, f"cat {secret}; echo x > {tmp_path}/made; env")
    assert "secret" not in output["stdout"]
    assert not (tmp_path / "made").exists()
    assert "CONVSERVER" not in output["stdout"]


async def test_a_body_that_no_program_can_be_given_is_refused(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"command": 5},
        {"command": "true", "timeout": "soon"},
        {"command": "true", "timeout": -1},
        {"command": "a\0b"},
        {"command": "x" * 100_001},
        {"command": "true", "cwd": "a\0b"},
    ]
    for body in wrong:
        with subtests.test(body=str(body)[:50]):
            for action in ("start_bash_command", "execute_bash_command"):
                known(await rest.post(f"{ONE}/{action}", json=body), 422)
    assert await searched(rest) == []


async def test_a_command_that_takes_too_long_is_ended_with_all_it_has_started(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    mark = f"600.{secrets.randbelow(10**9)}"
    output = await executed(
        rest, f"echo begun; trap '' TERM; sleep {mark} & sleep {mark}; echo never", timeout=1
    )
    assert (output["exit_code"], output["stdout"]) == (-1, "begun\n")
    await gone(mark)


async def test_a_command_is_stopped_by_its_id_and_another_goes_on(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    mark = f"600.{secrets.randbelow(10**9)}"
    command = known(
        await rest.post(f"{ONE}/start_bash_command", json={"command": f"sleep {mark}; echo never"})
    )
    other = known(await rest.post(f"{ONE}/start_bash_command", json={"command": "read; echo never"}))
    await there(mark)
    for _ in range(2):  # it has ended already
        assert known(await rest.post(f"{ONE}/bash_commands/{command['id']}/stop")) == {"success": True}
    (output,) = await ended(rest, command["id"])
    assert (output["exit_code"], output["stdout"]) == (-15, None)
    await gone(mark)
    assert (await ended(rest, other["id"]))[-1]["exit_code"] == 0  # nothing is at its input
    unknown = known(await rest.post(f"{ONE}/bash_commands/{NONE}/stop"), 404)
    assert unknown["detail"].startswith("This process knows no command")
    known(await rest.post(f"{ONE}/bash_commands/no-uuid/stop"), 422)
    known(await rest.get(f"{ONE}/bash_events/search", params={"command_id__eq": NONE}), 404)


async def test_what_a_command_leaves_in_the_background_ends_with_it(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    mark = f"600.{secrets.randbelow(10**9)}"
    output = await executed(rest, f"setsid sleep {mark} & echo done")
    assert (output["exit_code"], output["stdout"]) == (0, "done\n")
    await gone(mark)


async def test_commands_end_with_the_server(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    mark = f"600.{secrets.randbelow(10**9)}"
    known(await rest.post(f"{ONE}/start_bash_command", json={"command": f"sleep {mark}"}))
    await there(mark)
    await kept.close()
    await gone(mark)


async def test_long_output_comes_in_parts_and_the_answer_has_all_of_it(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    output = await executed(rest, "yes a | head -c 1100000; echo end", timeout=60)
    assert (output["exit_code"], len(output["stdout"]), output["order"]) == (0, 1_100_004, 1)
    parts = await searched(rest, command_id__eq=output["command_id"])
    assert [len(each["stdout"]) for each in parts] == [1024 * 1024, 1_100_004 - 1024 * 1024]
    assert [each["exit_code"] for each in parts] == [None, 0]
    (last,) = await searched(rest, command_id__eq=output["command_id"], order__gt=0, limit=1)
    assert last["stdout"].endswith("a\nend\n")


async def test_of_endless_output_the_first_part_is_kept_with_a_sentence(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, output=1000)
    output = await executed(rest, "yes aaaaaaa | head -c 100000; printf '\\377' >&2", timeout=30)
    assert len(output["stdout"]) <= 1000
    assert output["stderr"].startswith("�[The rest of the output was left out: 1,000 bytes are kept.]")


def bounded(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
    kept_here = KeptCommands(CommandBounds(**bounds))
    monkeypatch.setattr(kept._kept, "_make", lambda: kept_here)


async def test_the_oldest_commands_that_have_ended_are_forgotten(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, commands_of_one=2)
    first, *_ = [await executed(rest, f"echo {number}") for number in range(3)]
    assert [each["command"] for each in await searched(rest, kind__eq="BashCommand")] == ["echo 1", "echo 2"]
    known(await rest.get(f"{ONE}/bash_events/{first['id']}"), 404)
    assert known(await rest.delete(f"{ONE}/bash_events")) == {"cleared_count": 4}
    assert await searched(rest) == []


async def test_so_many_commands_of_a_user_run_at_a_time(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, running_of_one=1)
    command = known(await rest.post(f"{ONE}/start_bash_command", json={"command": "sleep 600"}))
    refused = await rest.post(f"{ONE}/start_bash_command", json={"command": "true"})
    assert known(refused, 429)["detail"].startswith("1 commands of yours are running")
    known(await rest.post(f"{ONE}/bash_commands/{command['id']}/stop"))
    assert (await executed(rest, "echo again"))["stdout"] == "again\n"


# Whose they are


async def test_commands_of_one_conversation_are_unknown_elsewhere(
    talk: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    other = await astore.call(agent_setups.create, alice, NewSetup())
    output = await executed(rest, "echo mine")
    elsewhere = f"{AGENT}/{other.public_id}/bash"
    for base in (ALL, elsewhere):
        assert await searched(rest, base) == []
        known(await rest.get(f"{base}/bash_events/{output['id']}"), 404)
        known(await rest.post(f"{base}/bash_commands/{output['command_id']}/stop"), 404)
        assert known(await rest.delete(f"{base}/bash_events")) == {"cleared_count": 0}
    assert len(await searched(rest)) == 2


async def test_a_stranger_finds_no_command_and_starts_none(
    talk: ConversationRef, bob: User, accounts: None, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    token = (await astore.call(ApiToken.issue, bob.pk, "t"))[1]
    requests: list[tuple[str, str, Any]] = [
        ("POST", "start_bash_command", {"command": "true"}),
        ("POST", "execute_bash_command", {"command": "true"}),
        ("GET", "bash_events/search", None),
        ("GET", f"bash_events/{NONE}", None),
        ("GET", "bash_events/?event_ids=a", None),
        ("DELETE", "bash_events", None),
        ("POST", f"bash_commands/{NONE}/stop", None),
    ]
    for method, path, body in requests:
        with subtests.test(path=path):
            answer = await rest.request(method, f"{ONE}/{path}", json=body, headers=bearer(token))
            assert known(answer, 404) == {"detail": f"Conversation not found: {ID}"}
            known(await rest.request(method, f"{ONE}/{path}", json=body), 401)
    for cwd in (None, "/projects/site"):  # alice's directory
        body = {"command": "true", "cwd": cwd}
        refused = await rest.post(f"{ALL}/start_bash_command", json=body, headers=bearer(token))
        assert known(refused, 404)["detail"].startswith("No conversation of yours is meant")


async def test_a_token_that_only_reads_runs_nothing(
    talk: ConversationRef, alice: User, accounts: None, rest: httpx.AsyncClient
) -> None:
    grant = Grant(scopes=frozenset({Scope.READ}))
    token = (await astore.call(ApiToken.issue, alice.pk, "t", grant))[1]
    known(await rest.get(f"{ONE}/bash_events/search", headers=bearer(token)))
    for method, path in (("POST", "start_bash_command"), ("DELETE", "bash_events")):
        known(
            await rest.request(method, f"{ONE}/{path}", json={"command": "true"}, headers=bearer(token)), 403
        )


@pytest.mark.needs_engine
async def test_without_a_conversation_the_newest_with_that_working_directory_is_meant(
    talk: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    def start(directory: str) -> ConversationRef:
        workspace = {"kind": "LocalWorkspace", "working_dir": directory}
        return agent_setups.create(alice, NewSetup(workspace=workspace))

    other = await astore.call(start, "/projects/other/")
    for directory, body in (("/projects/site", {"cwd": "/projects/site"}), ("/projects/other", {})):
        answer = await rest.post(f"{ALL}/execute_bash_command", json={"command": "pwd; touch here", **body})
        assert known(answer)["stdout"] == f"{directory}\n"
    for each in (talk, other):
        assert (await astore.call(records.directory_of, each) / "here").exists()
    assert len(await searched(rest, ALL)) == 4
    assert await searched(rest) == []
    unknown = await rest.post(f"{ALL}/execute_bash_command", json={"command": "pwd", "cwd": "/projects/none"})
    assert known(unknown, 404)["detail"].startswith("No conversation of yours is meant")
    # A page may show an older conversation.
    origin = {"origin": "http://localhost"}
    known(await rest.post(f"{ALL}/execute_bash_command", json={"command": "pwd"}, headers=origin), 404)


async def test_without_a_sandbox_a_command_is_refused_with_the_sentence_and_reads_are_empty(
    talk: ConversationRef, rest: httpx.AsyncClient, configured: Configured
) -> None:
    configured(sandbox=SandboxName.OFF)
    for base in (ONE, ALL):
        for action in ("start_bash_command", "execute_bash_command"):
            refused = known(await rest.post(f"{base}/{action}", json={"command": "true"}), 400)
            assert refused["detail"].startswith("There is no terminal: CONVSERVER_SANDBOX is off.")
        assert known(await rest.get(f"{base}/bash_events/search")) == {"items": [], "next_page_id": None}
    assert known(await rest.get("/agent/api/tools/")) == []


async def test_the_tools_of_workspaces_are_named(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    assert known(await rest.get("/agent/api/tools/")) == ["file_editor", "glob", "grep", "terminal"]


# The socket


async def test_commands_are_followed_and_started_by_the_socket(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient, dial: Dial
) -> None:
    opened = f"session_api_key={key['x-session-api-key']}"
    client = await dial(f"{SOCKET}?{opened}")
    await client.send({"command": "echo by the socket"})
    command = await until_kind(client, "BashCommand")
    output = await until_kind(client, "BashOutput", command_id=command["id"])
    assert (output["exit_code"], output["stdout"]) == (0, "by the socket\n")
    await client.send({"cwd": "/projects/site"})
    assert (await until_kind(client, "BashError"))["code"] == "ValidationError"
    await client.send({"command": "true", "cwd": "/etc"})
    assert (await until_kind(client, "BashError"))["code"] == "PathRefused"
    by_rest = await executed(rest, "echo by rest")
    assert (await until_kind(client, "BashOutput"))["id"] == by_rest["id"]
    for query, count in (("?resend_mode=all", 4), ("?resend_all=true", 4)):
        again = await dial(f"/agent{SOCKET}{query}&{opened}")
        kinds = [(await again.receive())["kind"] for _ in range(count)]
        assert kinds == ["BashCommand", "BashOutput"] * 2


async def test_a_socket_without_a_key_of_a_conversation_follows_the_users_own(
    talk: ConversationRef, rest: httpx.AsyncClient, dial: Dial
) -> None:
    client = await dial(SOCKET)
    await executed(rest, "echo of the conversation")
    await client.send({"command": "pwd", "cwd": "/projects/site"})
    command = await until_kind(client, "BashCommand")
    assert command["command"] == "pwd"
    await client.send({"command": "pwd", "cwd": "/projects/none"})
    assert "No conversation of yours is meant" in (await until_kind(client, "BashError"))["detail"]


async def test_a_first_frame_opens_the_socket_for_the_conversation_of_its_key_or_closes_it(
    talk: ConversationRef,
    key: dict[str, str],
    accounts: None,
    alice: User,
    bob: User,
    rest: httpx.AsyncClient,
    dial: Dial,
) -> None:
    only_talk, reads = Grant(conversation=talk), Grant(scopes=frozenset({Scope.READ}))
    tokens = {
        "of one conversation": (await astore.call(ApiToken.issue, alice.pk, "t", only_talk))[1],
        "a stranger's": (await astore.call(ApiToken.issue, bob.pk, "t"))[1],
        "reading": (await astore.call(ApiToken.issue, alice.pk, "t", reads))[1],
    }
    client = await dial(SOCKET)
    await client.send(auth(key["x-session-api-key"]))
    await client.send({"command": "echo mine"})
    command = await until_kind(client, "BashCommand")
    assert (await until_kind(client, "BashOutput"))["stdout"] == "mine\n"
    assert known(await rest.get(f"{ONE}/bash_events/{command['id']}", headers=key))["command"] == "echo mine"
    for name in ("wrong", tokens["of one conversation"]):
        closed = await dial(SOCKET)
        await closed.send(auth(name))
        assert (await closed.closed()).code == 4001
    stranger = await dial(SOCKET)
    await stranger.send(auth(tokens["a stranger's"]))
    await stranger.send({"command": "true", "cwd": "/projects/site"})
    assert "No conversation of yours" in (await until_kind(stranger, "BashError"))["detail"]
    reader = await dial(SOCKET)
    await reader.send(auth(tokens["reading"]))
    await reader.send({"command": "true", "cwd": "/projects/site"})
    assert (await until_kind(reader, "BashError"))["code"] == "ScopeTooSmall"


async def test_a_directory_that_no_start_can_have_named_names_nothing(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for cwd in ("/a" * 40_000, "/" + "a" * 90_000):
        with subtests.test(str(len(cwd))):
            answer = await rest.post(f"{ALL}/execute_bash_command", json={"command": "pwd", "cwd": cwd})
            assert answer.status_code == 404
    assert (await rest.get("/agent/api/git/changes?path=/%FF")).status_code < 500


async def test_clients_run_nothing_where_nothing_confines_it(
    talk: ConversationRef, rest: httpx.AsyncClient, configured: Configured
) -> None:
    configured(sandbox=SandboxName.NONE)
    answer = await rest.post(f"{ONE}/execute_bash_command", json={"command": "pwd"})
    assert answer.status_code == 400
    assert "without a sandbox" in answer.text
