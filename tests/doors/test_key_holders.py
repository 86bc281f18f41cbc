"""A crowd of sockets with the same key is authenticated by one look, which outlives no right."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity import key_holders
from sessions_app.identity.authentication import Credentials
from sessions_app.identity.key_holders import KNOWN_S, KeyHolders
from sessions_app.models import ApiToken, Grant
from tests.conftest import Connect, Dial
from tests.support.wires.v0_socket import Refused

pytestmark = pytest.mark.usefixtures("accounts", "live")


@pytest.fixture
def now() -> list[float]:
    """What the clock of the holders shows, as its only item."""
    return [0.0]


@pytest.fixture
def holders(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> KeyHolders:
    """The holders of this test, by a clock that stands."""
    made = KeyHolders(lambda: now[0])
    key_holders._all.add(made)
    monkeypatch.setattr(key_holders, "_key_holders", PerEventLoop(lambda: made))
    return made


@pytest.fixture
def token(alice: User) -> tuple[ApiToken, str]:
    return ApiToken.issue(alice.pk, "laptop")


async def test_a_crowd_shares_one_look_for_a_second(
    holders: KeyHolders, now: list[float], token: tuple[ApiToken, str]
) -> None:
    credentials = Credentials(bearer=token[1])
    crowd = await asyncio.gather(*(holders.find(credentials) for _ in range(20)))
    now[0] = KNOWN_S
    assert len({id(user) for user in crowd}) == 1
    assert await holders.find(credentials) is not crowd[0]


async def test_two_keys_share_nothing(holders: KeyHolders, token: tuple[ApiToken, str], bob: User) -> None:
    other = (await astore.call(ApiToken.issue, bob.pk, "laptop"))[1]
    found = [await holders.find(Credentials(bearer=key)) for key in (token[1], other)]
    assert [user.pk for user in found] == [token[0].user_id, bob.pk]


@pytest.mark.parametrize("of", ["header", "bearer"])
async def test_a_key_that_is_not_valid_is_looked_up_each_time(holders: KeyHolders, of: str) -> None:
    credentials = Credentials(api_key="unknown") if of == "header" else Credentials(bearer="unknown")
    first, second = [await holders.find(credentials) for _ in range(2)]
    assert not first.is_authenticated
    assert second is not first


async def test_a_token_that_soon_expires_is_looked_up_each_time(holders: KeyHolders, alice: User) -> None:
    soon = timezone.now() + timedelta(seconds=KNOWN_S / 2)
    key = (await astore.call(lambda: ApiToken.issue(alice.pk, "short", Grant(expires_at=soon))))[1]
    first, second = [await holders.find(Credentials(bearer=key)) for _ in range(2)]
    assert second is not first


async def test_one_who_leaves_during_the_look_does_not_end_it_for_the_others(
    holders: KeyHolders, token: tuple[ApiToken, str]
) -> None:
    credentials = Credentials(bearer=token[1])
    leaves, stays = [asyncio.ensure_future(holders.find(credentials)) for _ in range(2)]
    await asyncio.sleep(0)
    leaves.cancel()
    assert (await stays).is_authenticated


async def test_a_revoked_token_opens_no_native_socket_from_then_on(
    holders: KeyHolders, conversation: ConversationRef, token: tuple[ApiToken, str], dial: Dial
) -> None:
    path, headers = f"/ws/conversations/{conversation.public_id}", {"x-session-api-key": token[1]}
    client = await dial(path, headers=headers)
    assert (await client.receive())["type"] == "hello"
    await astore.call(token[0].revoke)
    assert (await (await dial(path, headers=headers)).closed()).code == 4401


async def test_a_revoked_token_opens_no_v0_socket_from_then_on(
    holders: KeyHolders, conversation: ConversationRef, token: tuple[ApiToken, str], connect: Connect
) -> None:
    headers = {"x-session-api-key": token[1]}
    await connect(conversation.public_id, headers=headers)
    await astore.call(token[0].revoke)
    with pytest.raises(Refused):
        await connect(conversation.public_id, headers=headers)
