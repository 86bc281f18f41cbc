"""Socket.IO by polling: the id of a connection is part of its address, and lets no request in by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Event
from convserver.asgi import application
from sessions_app import astore
from sessions_app.models import ApiToken, Grant, Scope
from tests.doors.test_access import login_cookie
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import until_true

pytestmark = pytest.mark.one_engine

QUERY = {"EIO": "4", "transport": "polling", "conversation_id": "talk"}
UNKNOWN_ID = "AAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """The credentials of a request, and where they are."""

    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


NOTHING = Carried()


def by_every_carrier(token: str, cookie: str) -> dict[str, Carried]:
    """Return each way of bringing credentials of one user."""
    return {
        "authorization": Carried(headers={"authorization": f"Bearer {token}"}),
        "x-session-api-key": Carried(headers={"x-session-api-key": token}),
        "cookie": Carried(headers={"cookie": cookie}),
        "address": Carried(query={"session_api_key": token}),
    }


@dataclass(frozen=True, kw_only=True)
class Polled:
    """A connection by polling, as one client has it."""

    http: httpx.AsyncClient
    carried: Carried
    sid: str = ""

    async def get(self) -> httpx.Response:
        return await self.http.get("/socket.io/", params=self._query, headers=dict(self.carried.headers))

    async def post(self, packets: str) -> httpx.Response:
        return await self.http.post(
            "/socket.io/", params=self._query, headers=dict(self.carried.headers), content=packets
        )

    async def say(self, text: str) -> httpx.Response:
        """Send a message."""
        event = {"action": "message", "args": {"content": text}}
        return await self.post(f"42{json.dumps(['oh_user_action', event])}")

    async def upgrades(self) -> bool:
        """Try to go over to a WebSocket; say whether it is let in."""
        address = f"/socket.io/?{httpx.QueryParams({**self._query, 'transport': 'websocket'})}"
        sent = {
            "host": "localhost",
            "upgrade": "websocket",
            "connection": "upgrade",
            **self.http.build_request("GET", "/socket.io/", headers=dict(self.carried.headers)).headers,
        }
        pairs = [(name.encode(), value.encode()) for name, value in {**sent, "connection": "upgrade"}.items()]
        socket = WebsocketCommunicator(application, address, headers=pairs)
        is_in, _ = await socket.connect(timeout=WAIT_S)
        if is_in:
            await socket.send_to(text_data="2probe")
            assert (await socket.receive_output(WAIT_S))["text"] == "3probe"
            await socket.disconnect(timeout=WAIT_S)
        return is_in

    async def until(self, text: str) -> None:

        async def has_come() -> bool:
            return text in (await self.get()).text

        await until_true(has_come)

    @property
    def _query(self) -> dict[str, str]:
        return {**QUERY, **self.carried.query, **({"sid": self.sid} if self.sid else {})}


Browse = Callable[[], httpx.AsyncClient]


@pytest.fixture
async def browse(live: None) -> AsyncIterator[Browse]:
    """Have a client with cookies of its own."""
    clients: list[httpx.AsyncClient] = []

    def made() -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=application)
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://localhost"))
        return clients[-1]

    yield made
    for each in clients:
        await each.aclose()


async def opened(http: httpx.AsyncClient, carried: Carried) -> Polled:
    """Open a connection, and join nothing."""
    new = Polled(http=http, carried=carried)
    return replace(new, sid=json.loads((await new.get()).text[1:])["sid"])


async def joined(http: httpx.AsyncClient, carried: Carried) -> Polled:
    """Open a connection and join the conversation."""
    polled = await opened(http, carried)
    assert (await polled.post("40")).status_code == 200
    await polled.until("40{")
    return polled


async def answers(polled: Polled) -> dict[str, Any]:
    """Return what a client is answered who reads, writes and goes over to a WebSocket."""
    return {
        "upgrade": await polled.upgrades(),
        "write": _shown(await polled.say("from elsewhere"), polled),
        "join": _shown(await polled.post("40"), polled),
        "read": _shown(await polled.get(), polled),
    }


def _shown(answer: httpx.Response, polled: Polled) -> tuple[int, str, list[tuple[str, str]]]:
    headers = [pair for pair in answer.headers.multi_items() if pair[0] != "content-length"]
    return answer.status_code, answer.text.replace(polled.sid, "SID"), headers


def issued(user: User, **grant: Any) -> str:
    return ApiToken.issue(user.pk, "laptop", Grant(**grant))[1]


@pytest.fixture
def as_alice(conversation: ConversationRef, alice: User) -> dict[str, Carried]:
    """The owner's credentials, by each carrier."""
    return by_every_carrier(issued(alice), login_cookie(alice))


@pytest.fixture
def others(conversation: ConversationRef, alice: User, bob: User) -> dict[str, Carried]:
    """Credentials of others, and of the owner's programs that may do less."""
    strangers = by_every_carrier(issued(bob), login_cookie(bob))
    small = by_every_carrier(issued(alice, scopes=[Scope.READ]), "")
    return {
        "nobody": NOTHING,
        "a wrong key": Carried(query={"session_api_key": "cs_wrong"}),
        **{f"a stranger by {carrier}": carried for carrier, carried in strangers.items()},
        "a token that only reads": small["authorization"],
    }


async def test_a_polled_connection_is_read_written_and_upgraded_by_its_own_client_alone(
    accounts: None,
    as_alice: dict[str, Carried],
    others: dict[str, Carried],
    browse: Browse,
    subtests: pytest.Subtests,
) -> None:
    absent = Polled(http=browse(), carried=NOTHING, sid=UNKNOWN_ID)
    refused = await answers(absent)
    assert (refused["upgrade"], refused["read"][0], refused["write"][0]) == (False, 400, 400)
    for carrier, carried in as_alice.items():
        for is_joined in (False, True):
            mine = await (joined if is_joined else opened)(browse(), carried)
            for who, theirs in others.items():
                with subtests.test(carrier=carrier, is_joined=is_joined, who=who):
                    assert await answers(replace(mine, http=browse(), carried=theirs)) == refused
            with subtests.test(carrier=carrier, is_joined=is_joined, who="the owner"):
                if not is_joined:
                    assert (await mine.post("40")).status_code == 200
                    await mine.until("40{")
                assert (await mine.say(f"mine by {carrier} {is_joined}")).status_code == 200
                await mine.until(f"mine by {carrier} {is_joined}")
                assert await mine.upgrades()
            await mine.post("1")
    said = await astore.call(
        lambda: list(Event.objects.filter(kind="message").values_list("text", flat=True))
    )
    assert [text for text in said if "elsewhere" in text] == []


async def test_requests_without_the_headers_of_the_first_one_are_known_by_its_cookie(
    accounts: None, as_alice: dict[str, Carried], browse: Browse, subtests: pytest.Subtests
) -> None:
    """As the Python client sends them: `headers` come with the handshake alone, cookies with each request."""
    for carrier in ("authorization", "x-session-api-key", "cookie"):
        with subtests.test(carrier=carrier):
            mine = await joined(browse(), as_alice[carrier])
            later = replace(mine, carried=NOTHING)
            assert (await later.say(f"by {carrier}")).status_code == 200
            await later.until(f"by {carrier}")
            assert await later.upgrades()
            another = await joined(browse(), as_alice[carrier])
            assert (await answers(replace(mine, http=another.http, carried=NOTHING)))["read"][0] == 400


async def test_more_credentials_of_the_same_client_are_its_own(
    accounts: None, alice: User, conversation: ConversationRef, browse: Browse
) -> None:
    token = await astore.call(issued, alice)
    in_both = Carried(headers={"authorization": f"Bearer {token}"}, query={"session_api_key": token})
    mine = await opened(browse(), in_both)
    later = replace(mine, http=browse(), carried=Carried(query=in_both.query))
    assert (await later.post("40")).status_code == 200
    await later.until("40{")
    assert (await later.say("still me")).status_code == 200
    await later.until("still me")


async def test_once_its_credentials_have_ended_a_polled_connection_is_over(
    accounts: None, alice: User, as_alice: dict[str, Carried], browse: Browse, subtests: pytest.Subtests
) -> None:
    refused = await answers(Polled(http=browse(), carried=NOTHING, sid=UNKNOWN_ID))
    mine = {carrier: await joined(browse(), carried) for carrier, carried in as_alice.items()}
    for token in await astore.call(lambda: list(ApiToken.objects.all())):
        await astore.call(token.revoke)
    for carrier in ("authorization", "x-session-api-key", "address"):
        with subtests.test(carrier=carrier):
            assert await answers(mine[carrier]) == refused
            assert await answers(replace(mine[carrier], carried=NOTHING)) == refused
    assert not await astore.call(Event.objects.filter(kind="message").exists)
    assert (await mine["cookie"].say("my login lasts")).status_code == 200
    await mine["cookie"].until("my login lasts")


async def test_a_client_without_valid_credentials_is_told_so_by_the_socket(
    accounts: None, browse: Browse, subtests: pytest.Subtests
) -> None:
    for who, carried in {
        "nothing": NOTHING,
        "a wrong key": Carried(query={"session_api_key": "cs_wrong"}),
    }.items():
        with subtests.test(who):
            polled = await opened(browse(), carried)
            assert (await polled.post("40")).status_code == 200
            assert json.loads((await polled.get()).text[2:])["message"] == "invalid_session_api_key"


async def test_no_cookie_is_given_where_no_credentials_are_needed(browse: Browse) -> None:
    http = browse()
    await opened(http, NOTHING)
    assert not http.cookies


async def test_jsonp_is_refused_in_words(
    browse: Browse, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    http = browse()
    mine = await joined(http, NOTHING)
    for sid in ("", mine.sid):
        for number in ("0", "", "x"):
            with subtests.test(sid=bool(sid), number=number):
                query = {**QUERY, "j": number, **({"sid": sid} if sid else {})}
                answer = await http.get("/socket.io/", params=query)
                assert answer.status_code == 400
                assert answer.headers["content-type"].startswith("text/plain")
                assert "JSONP" in answer.text
    posted = await http.post("/socket.io/", params={**QUERY, "j": "0", "sid": mine.sid}, content="d=3")
    assert (posted.status_code, "JSONP" in posted.text) == (400, True)
    assert (await mine.say("still there")).status_code == 200
