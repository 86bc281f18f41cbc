"""What an agent's tools say of the repository becomes the conversation's: its branch, its pull requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, NamedTuple

import pytest
from django.contrib.auth.models import User

from conversations import tool_facts
from conversations.models import Conversation, ConversationRef
from conversations.store import changes, creation
from sessions_app import astore
from sessions_app.agents.base import Turn
from sessions_app.settings import user_settings
from tests.conftest import Join
from tests.support.data.threads import in_threads
from tests.support.people.clients import Client
from tests.support.people.dictation import SilentAgent

pytestmark = pytest.mark.one_engine


class Result(NamedTuple):
    """A call, and what it gives back."""

    command: str
    content: str
    exit_code: int = 0
    tool: str = "run"


class ToolAgent(SilentAgent):
    """Calls what the test says."""

    results: ClassVar[Sequence[Result]]

    async def play(self, turn: Turn) -> None:
        for result in self.results:
            call = await turn.call_tool(result.tool, {"command": result.command})
            await turn.tool_result(call, result.content, exit_code=result.exit_code)


Carry = Callable[..., Awaitable[Client]]


@pytest.fixture
def carry_out(alice: User, configured: Callable[..., None], join: Join) -> Carry:
    """Let the agent of a conversation carry out calls; return the client that watched."""
    configured(agent="tests.store.test_tool_facts.ToolAgent")

    async def ask(*results: Result) -> Client:
        ToolAgent.results = results
        client = await join("talk")
        await client.send({"type": "message", "text": "go on"})
        await client.until("event", kind="turn")
        return client

    return ask


@pytest.fixture
def talk(alice: User) -> None:
    """A conversation about a repository."""
    creation.create(alice, conversation_id="talk", repository="acme/shop", branch="main")


async def branch() -> str | None:
    return (await astore.call(Conversation.objects.get, public_id="talk")).branch


async def pull_requests() -> list[int]:
    return list((await astore.call(Conversation.objects.get, public_id="talk")).pr_number)


@pytest.mark.usefixtures("talk")
async def test_a_branch_that_git_has_checked_out_becomes_the_conversations_and_readers_are_told(
    carry_out: Carry,
) -> None:
    client = await carry_out(Result("cd shop && git checkout -b fix/7", "Switched to a new branch 'fix/7'"))
    assert await branch() == "fix/7"
    while not any(frame.get("changes", {}).get("branch") == "fix/7" for frame in client.frames):
        await client.receive()


@pytest.mark.usefixtures("talk")
@pytest.mark.parametrize(
    "result",
    [
        Result("echo git branch", "* fix/7"),
        Result("git commit -m 'git switch fix/7'", "Switched to branch 'fix/7'"),
        Result("git switch fix/7", "error: pathspec 'fix/7' did not match: Switched to branch 'fix/7'", 1),
        Result("git checkout -- shop.py", ""),
        Result("git branch", "* (HEAD detached at 1a2b3c4)\n  main"),
        Result("git switch fix/7", "Switched to branch 'fix/7'", tool="search"),
    ],
)
async def test_what_only_looks_like_it_changes_no_branch(carry_out: Carry, result: Result) -> None:
    await carry_out(result)
    assert await branch() == "main"


@pytest.mark.usefixtures("conversation")
async def test_without_a_repository_no_branch_is_followed(carry_out: Carry) -> None:
    await carry_out(Result("git switch dev", "Switched to branch 'dev'"))
    assert await branch() is None


@pytest.mark.usefixtures("talk")
async def test_pull_requests_of_all_providers_are_kept_in_order_and_once(carry_out: Carry) -> None:
    await carry_out(
        Result("", "https://github.com/acme/shop/pull/12", tool="create_pr"),
        Result("", "opened https://gitlab.com/acme/shop/-/merge_requests/3.", tool="create_mr"),
        Result("", "https://bitbucket.org/acme/shop/pull-requests/44", tool="create_bitbucket_pr"),
        Result("", "https://dev.azure.com/o/p/_git/shop/pullrequest/9", tool="create_azure_devops_pr"),
        Result("", "https://github.com/acme/shop/pull/12", tool="create_pr"),
    )
    assert await pull_requests() == [12, 3, 44, 9]


@pytest.mark.usefixtures("talk")
async def test_a_pull_request_that_was_not_opened_is_not_kept(carry_out: Carry) -> None:
    await carry_out(
        Result("", "https://github.com/acme/shop/pull/12", 1, tool="create_pr"),
        Result("curl", "https://github.com/acme/shop/pull/13"),
        Result("", "there is no address", tool="create_pr"),
    )
    assert await pull_requests() == []


@pytest.mark.usefixtures("talk")
async def test_a_branch_that_holds_a_secret_is_not_taken(carry_out: Carry, alice: User) -> None:
    await astore.call(user_settings.create_custom_secret, alice.pk, "KEY", "s3cr3t-value", description="")
    await carry_out(Result("git switch x", "Switched to branch 's3cr3t-value'"))
    assert await branch() == "main"


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_pull_requests_that_are_noted_at_the_same_time_are_all_kept(conversation: ConversationRef) -> None:
    in_threads(8, lambda number: changes.note_pull_request(conversation, number))
    assert sorted(Conversation.objects.get().pr_number) == list(range(8))


@pytest.mark.usefixtures("talk")
async def test_what_a_client_records_changes_neither(join: Join) -> None:
    extras = {"command": "git switch dev", "metadata": {"exit_code": 0}}
    event = {"observation": "run", "content": "Switched to branch 'dev'", "extras": extras}
    client = await join("talk")
    await client.send({"type": "event", "id": "1", "event": event})
    await client.until("ack")
    assert (await branch(), await pull_requests()) == ("main", [])


def test_the_branch_is_what_git_says(subtests: pytest.Subtests) -> None:
    for command, output, expected in [
        ("git branch", "  main\n* dev\n", "dev"),
        ("git -C shop -c a.b=c switch dev", "Switched to branch 'dev'\nYour branch is up to date.", "dev"),
        ("git switch a; git switch b", "Switched to branch 'a'\nSwitched to branch 'b'", "b"),
        ("HOME=/x git checkout -B dev", "Switched to and reset branch 'dev'", "dev"),
        ("git checkout dev", "Already on 'dev'", "dev"),
        ("git rebase main", "Successfully rebased and updated refs/heads/dev.", "dev"),
        ("git branch -m dev", "", "dev"),
        ("git branch -m old dev", "", None),
        ("git merge main", "Already up to date.", None),
        ("git switch dev 'an open quotation", "Switched to branch 'dev'", "dev"),
        ("git", "", None),
        ("", "", None),
        ("git switch x", "Switched to branch 'a\0b'", None),
        ("git switch x", "Switched to branch 'a\ud800b'", None),
        ("git switch x", f"Switched to branch '{'b' * 251}'", None),
    ]:
        with subtests.test(command=command, output=output, expected=expected):
            assert tool_facts.branch_after(command, output) == expected
