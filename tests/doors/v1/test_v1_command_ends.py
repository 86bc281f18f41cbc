"""Commands of clients end with their conversation, and with the access of who has started them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from conversations.models import Conversation, ConversationRef
from conversations.store import deletion, purging
from sessions_app import astore
from sessions_app.identity import conversation_keys
from sessions_app.identity.conversation_keys import key_of
from sessions_app.models import ApiToken
from sessions_app.shell_commands import kept
from sessions_app.shell_commands.kept import HistoryKey
from sessions_app.shell_commands.running import STOPPED, RunningCommand
from tests.conftest import Dial
from tests.doors.test_access import bearer, login_cookie
from tests.doors.v1.test_v1_commands import ONE, SOCKET, gone, talk, there
from tests.support.people.scripted_agent import until_here
from tests.support.wires.v1 import known

__all__ = ["talk"]
pytestmark = pytest.mark.one_engine


def running(conversation: ConversationRef) -> list[RunningCommand]:
    """Return the commands of a conversation that run in this process."""
    key = HistoryKey(conversation.owner_id, conversation.pk)
    found = kept.commands().search(key, kept.EventsWanted(kind="BashCommand"), newest_first=False)
    commands = [kept.commands().command(key, each.id) for each in found]
    return [each for each in commands if not each.has_ended]


async def begun(rest: httpx.AsyncClient, headers: dict[str, str], mark: str) -> RunningCommand:
    """Start a command that would run for ten minutes."""
    body = {"command": f"sleep {mark}", "timeout": 3600}
    started = known(await rest.post(f"{ONE}/start_bash_command", json=body, headers=headers))
    await there(mark)
    user = await astore.call(User.objects.get)
    pk = await astore.call(lambda: Conversation.objects.get().pk)
    return kept.commands().command(HistoryKey(user.pk, pk), started["id"])


def revoke() -> None:
    for row in ApiToken.objects.valid():
        row.revoke()


def deactivate() -> None:
    user = User.objects.get()
    user.is_active = False
    user.save()


def purge(conversation: ConversationRef) -> None:
    purging.begin(conversation, among=Conversation.objects.all(), requested_by="test", reason="")


DELETIONS: dict[str, Callable[[ConversationRef], Any]] = {"trash": deletion.soft_delete, "purge": purge}


@pytest.mark.parametrize("way", DELETIONS)
async def test_a_command_ends_when_its_conversation_goes(
    talk: ConversationRef, rest: httpx.AsyncClient, way: str
) -> None:
    mark = f"600.70{hash(way) % 10**7:07d}"
    command = await begun(rest, {}, mark)
    await astore.call(DELETIONS[way], talk)
    await gone(mark)
    output = await command.end()
    assert (output.exit_code, output.stderr) == (
        STOPPED,
        "[The command was ended, because its conversation was deleted.]\n",
    )
    assert running(talk) == []


ENDS: dict[str, tuple[str, Callable[[ConversationRef], Any]]] = {
    "token revoked": ("token", lambda talk: revoke()),
    "account disabled": ("token", lambda talk: deactivate()),
    "logged out": ("login", lambda talk: Session.objects.all().delete()),
    "key of the conversation made anew": ("key", conversation_keys.rotate),
}


async def test_a_command_ends_with_the_access_of_the_client_that_started_it(
    accounts: None, talk: ConversationRef, alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for number, (name, (by, end)) in enumerate(ENDS.items()):
        with subtests.test(end=name):
            await astore.call(lambda: User.objects.update(is_active=True))
            headers = bearer((await astore.call(ApiToken.issue, alice.pk, "laptop"))[1])
            if by == "key":
                headers = {"x-session-api-key": await astore.call(key_of, talk)}
            elif by == "login":
                secret = "s" * 32
                cookie = f"{await astore.call(login_cookie, alice)}; csrftoken={secret}"
                headers = {"cookie": cookie, "x-csrftoken": secret}
            mark = f"600.{id(talk) % 10**8}{number}"
            command = await begun(rest, headers, mark)
            await astore.call(end, talk)
            await gone(mark)
            output = await command.end()
            assert output.exit_code == STOPPED
            assert output.stderr is not None
            assert "the access of the client" in output.stderr


async def test_commands_of_another_credential_go_on(
    accounts: None, talk: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    (first, lost), (_, other) = [
        await astore.call(ApiToken.issue, alice.pk, name) for name in ("laptop", "phone")
    ]
    marks = [f"600.{id(talk) % 10**8}{number}" for number in (8, 9)]
    ends, stays = [
        await begun(rest, bearer(token), mark) for token, mark in zip((lost, other), marks, strict=True)
    ]
    await astore.call(first.revoke)
    await gone(marks[0])
    assert (await ends.end()).exit_code == STOPPED
    assert running(talk) == [stays]


async def test_a_command_of_the_socket_ends_with_the_conversation(
    talk: ConversationRef, rest: httpx.AsyncClient, dial: Dial
) -> None:
    mark = f"600.{id(talk) % 10**8}7"
    client = await dial(f"{SOCKET}?session_api_key={await astore.call(key_of, talk)}")
    await client.send({"command": f"sleep {mark}", "timeout": 3600})
    await there(mark)
    await astore.call(deletion.soft_delete, talk)
    await gone(mark)
    await until_here(lambda: running(talk) == [])
