"""How often the server's key may be guessed, in whatever place of a request."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import httpx
import pytest
from django.contrib.auth.models import User

from convserver.asgi import application
from sessions_app import astore
from sessions_app.identity import conversation_keys, key_throttle
from sessions_app.identity.key_throttle import WRONG_IN_ALL_MAX, WRONG_MAX, KeyThrottle
from sessions_app.models import ApiToken
from tests.conftest import Dial
from tests.support.people.clients import SocketClosed
from tests.support.wires.v1_socket import auth, events_path

pytestmark = pytest.mark.one_engine

KEY = "the key of this server"
LIST = "/api/native/conversations"
HERE, ELSEWHERE = "192.0.2.7", "192.0.2.8"
WRONG = [f"wrong key number {number}" for number in range(WRONG_MAX + 1)]


@pytest.fixture(autouse=True)
def server_key(configured: Callable[..., None]) -> None:
    configured(session_api_key=KEY)


async def ask(headers: Mapping[str, str], *, address: str = HERE, path: str = LIST) -> int:
    """Ask for the list from an address; return the status."""
    transport = httpx.ASGITransport(app=application, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await client.get(path, headers=headers)).status_code


async def ask_by_key(key: str, *, address: str = HERE) -> int:
    return await ask({"x-session-api-key": key}, address=address)


async def guess(*, address: str = HERE) -> None:
    for key in WRONG[:WRONG_MAX]:
        assert await ask_by_key(key, address=address) == 401


PLACES: dict[str, Callable[[str], tuple[dict[str, str], str]]] = {
    "header": lambda key: ({"x-session-api-key": key}, LIST),
    "bearer": lambda key: ({"authorization": f"Bearer {key}"}, LIST),
    "address": lambda key: ({}, f"{LIST}?session_api_key={key}"),
    "encoded_address": lambda key: ({}, f"{LIST}?session%5Fapi%5fkey={key}"),
    "agent_face": lambda key: ({"x-session-api-key": key}, "/agent/api/conversations/count"),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_who_guesses_keys_too_often_has_to_wait_though_the_next_is_right(
    live: None, alice: User, place: Callable[[str], tuple[dict[str, str], str]]
) -> None:
    for key in WRONG[:WRONG_MAX]:
        headers, path = place(key)
        assert await ask(headers, path=path) == 401
    headers, path = place(KEY)
    assert await ask(headers, path=path) == 429
    assert await ask_by_key(KEY, address=ELSEWHERE) == 200


async def test_the_refusal_says_when_to_try_again(live: None, alice: User) -> None:
    await guess()
    transport = httpx.ASGITransport(app=application, client=(HERE, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(LIST, headers={"x-session-api-key": KEY})
    assert (answer.headers["retry-after"], answer.json()["code"]) == ("300", "too_many_attempts")


async def test_a_program_that_repeats_an_old_key_keeps_nobody_out(live: None, alice: User) -> None:
    for _ in range(2 * WRONG_MAX):
        assert await ask_by_key("an old key") == 401
    assert await ask_by_key(KEY) == 200


async def test_tokens_are_no_guesses_and_go_on_where_keys_were_guessed(live: None, alice: User) -> None:
    _, token = await astore.call(ApiToken.issue, alice.pk, "mine")
    for number in range(2 * WRONG_MAX):
        assert await ask_by_key(f"cs_revoked{number}") == 401
        assert await ask_by_key(f"{conversation_keys.PREFIX}rotated{number}") == 401
    assert await ask_by_key(KEY) == 200
    await guess()
    assert await ask_by_key(token) == 200


async def test_a_network_of_one_subscriber_counts_as_one_address(live: None, alice: User) -> None:
    await guess(address="2001:db8::7")
    assert await ask_by_key(KEY, address="2001:db8::8:9") == 429
    assert await ask_by_key(KEY, address="2001:db8:0:1::7") == 200


async def test_handshakes_and_first_frames_count_as_well(dial: Dial) -> None:
    keys = itertools.chain(WRONG[:WRONG_MAX], itertools.repeat(KEY))
    for _ in range(3):
        with pytest.raises(SocketClosed, match="4401"):
            await (await dial("/ws/conversations", headers={"x-session-api-key": next(keys)})).receive()
    for _ in range(3):
        client = await dial("/ws/conversations")
        await client.send({"type": "auth", "token": next(keys)})
        assert (await client.closed()).code == 4401
    for _ in range(4):
        client = await dial(events_path())
        await client.send(auth(next(keys)))
        assert (await client.closed()).code == 4001
    client = await dial("/ws/conversations")
    await client.send({"type": "auth", "token": KEY})
    assert (await client.closed()).code == 4429
    client = await dial(events_path())
    await client.send(auth(KEY))
    closed = await client.closed()
    assert (closed.code, closed.reason) == (4429, key_throttle.DETAIL)
    with pytest.raises(SocketClosed, match="4429"):
        await dial("/ws/conversations", headers={"x-session-api-key": KEY})


async def test_after_many_wrong_keys_of_all_addresses_each_has_one_attempt(live: None, alice: User) -> None:
    for number in range(WRONG_IN_ALL_MAX):
        key_throttle.key_throttle.admits(f"10.0.{number // 200}.{number % 200}", [f"wrong {number}"])
    assert await ask_by_key(KEY) == 200
    assert [await ask_by_key("wrong"), await ask_by_key(KEY)] == [401, 429]


def test_wrong_keys_are_forgotten_with_their_window() -> None:
    now = 0.0
    throttle = KeyThrottle(lambda: now)
    assert all(throttle.admits(HERE, [key]) for key in WRONG[:WRONG_MAX])
    assert not throttle.admits(HERE, [KEY])
    now = key_throttle.WINDOW_S
    assert throttle.admits(HERE, [KEY])


def test_a_bounded_number_of_addresses_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_throttle, "ADDRESSES_MAX", 10)
    throttle = KeyThrottle()
    for number in range(100):
        for key in WRONG[:WRONG_MAX]:
            throttle.admits(f"10.0.0.{number}", [key])
    assert throttle.admits("10.0.0.50", [KEY])
    assert not throttle.admits("10.0.0.99", [KEY])


async def test_without_a_key_of_the_server_nothing_is_counted(
    live: None, alice: User, configured: Callable[..., None]
) -> None:
    configured(session_api_key=None)
    for key in WRONG:
        assert await ask_by_key(key) == 200
