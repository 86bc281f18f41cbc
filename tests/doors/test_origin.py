"""From which pages the server may be driven, and under which names it may be reached."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from channels.testing import HttpCommunicator
from django.conf import settings
from django.contrib.auth.models import User

from convserver.asgi import application
from tests.conftest import Dial
from tests.support.people.clients import SocketClosed

pytestmark = pytest.mark.one_engine

LIST = "/api/native/conversations"
SOCKET = "/ws/conversations"
PERMITTED = "https://pages.example"

OUR_OWN = {
    "no page at all": {"host": "localhost:8000"},
    "a name in capitals": {"host": "LOCALHOST:8000"},
    "loopback by number": {"host": "127.0.0.1:8000"},
    "IPv6": {"host": "[::1]:8000"},
    "IPv6 without a port": {"host": "[::1]"},
    "own page": {"host": "localhost:8000", "origin": "http://localhost:8000"},
    "own page in capitals": {"host": "localhost:8000", "origin": "HTTP://LOCALHOST:8000"},
    "own page by IPv6": {"host": "[::1]:8000", "origin": "http://[::1]:8000"},
    "own page behind TLS": {"host": "localhost", "origin": "https://localhost"},
    "own fetch": {"host": "localhost:8000", "sec-fetch-site": "same-origin"},
    "typed address": {"host": "localhost:8000", "sec-fetch-site": "none"},
}
FOREIGN_NAMES = {
    "rebound name": {"host": "evil.example"},
    "rebound name with our port": {"host": "evil.example:8000"},
    "rebound name and its page": {"host": "evil.example", "origin": "http://evil.example"},
    "name that ends like ours": {"host": "evil.localhost"},
    "name that begins like ours": {"host": "localhost.evil.example"},
    "user before our name": {"host": "evil@localhost"},
    "empty": {"host": ""},
    "no name": {"host": "://"},
    "IPv6 of somebody else": {"host": "[::2]:8000"},
    "IPv6 cut short": {"host": "[::1"},
    "all interfaces": {"host": "0.0.0.0:8000"},
}
FOREIGN_PAGES = {
    "another site": {"origin": "https://evil.example"},
    "another port": {"origin": "http://localhost:3000"},
    "no port": {"origin": "http://localhost"},
    "another name of this machine": {"origin": "http://127.0.0.1:8000"},
    "opaque": {"origin": "null"},
    "empty": {"origin": ""},
    "no origin": {"origin": "localhost:8000"},
    "cut short": {"origin": "http://[::1"},
    "ours as a user": {"origin": "http://localhost:8000@evil.example"},
    "fetch of another site": {"sec-fetch-site": "cross-site"},
    "fetch of a sibling": {"sec-fetch-site": "same-site"},
    "fetch of a kind of tomorrow": {"sec-fetch-site": "near-by"},
}
CROSS_SITE_LINK = {
    "host": "localhost:8000",
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}


@pytest.fixture
def permitted(configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages of one other origin in, as PERMITTED_CORS_ORIGINS does."""
    configured(permitted_origins=(PERMITTED,))
    monkeypatch.setattr(settings, "CORS_ALLOWED_ORIGINS", [PERMITTED])


async def test_what_is_addressed_to_us_from_our_pages_is_let_in(
    rest: httpx.AsyncClient, dial: Dial, subtests: pytest.Subtests
) -> None:
    for name, headers in OUR_OWN.items():
        with subtests.test(name):
            assert (await rest.get(LIST, headers=headers)).status_code == 200
            assert (await (await dial(SOCKET, headers=headers)).receive())["type"] == "hello"


async def test_a_foreign_name_is_refused(
    rest: httpx.AsyncClient, dial: Dial, subtests: pytest.Subtests
) -> None:
    for name, headers in FOREIGN_NAMES.items():
        with subtests.test(name):
            answer = await rest.get(LIST, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "unknown_host")
            assert "CONVSERVER_ALLOWED_HOSTS" in answer.json()["detail"]
            with pytest.raises(SocketClosed, match="4403"):
                await dial(SOCKET, headers=headers)


async def test_a_person_who_comes_by_a_foreign_name_gets_a_page_that_says_what_to_do(
    rest: httpx.AsyncClient,
) -> None:
    answer = await rest.get("/", headers={"host": "<b>evil</b>.example", "accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "CONVSERVER_ALLOWED_HOSTS" in answer.text
    assert "<b>evil" not in answer.text
    assert not re.search(r"(src|href)=", answer.text), "what this page needs would be refused, too"


async def test_a_request_without_a_host_is_refused(live: None) -> None:
    answer = await HttpCommunicator(application, "GET", LIST).get_response()
    assert answer["status"] == 403


async def test_a_foreign_page_is_refused(
    rest: httpx.AsyncClient, dial: Dial, subtests: pytest.Subtests
) -> None:
    for name, foreign in FOREIGN_PAGES.items():
        headers = {"host": "localhost:8000", **foreign}
        for method in ("GET", "POST", "OPTIONS"):
            with subtests.test(name, method=method):
                answer = await rest.request(method, LIST, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
                assert "access-control-allow-origin" not in answer.headers
        with subtests.test(name, method="socket"), pytest.raises(SocketClosed, match="4403"):
            await dial(SOCKET, headers=headers)


async def test_a_link_on_a_foreign_page_leads_here(rest: httpx.AsyncClient) -> None:
    assert (await rest.get("/", headers=CROSS_SITE_LINK)).status_code == 200


NO_LINKS: dict[str, dict[str, str]] = {
    "a form": {"method": "POST"},
    "a fetch": {"sec-fetch-mode": "cors"},
    "a picture": {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    "a frame": {"sec-fetch-dest": "iframe"},
    "a rebound name": {"host": "evil.example"},
}


async def test_only_a_followed_link_may_come_from_a_foreign_page(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name, change in NO_LINKS.items():
        with subtests.test(name):
            headers = {**CROSS_SITE_LINK, **change}
            answer = await rest.request(headers.pop("method", "GET"), "/", headers=headers)
            assert answer.status_code == 403


async def test_a_link_opens_no_socket(dial: Dial) -> None:
    with pytest.raises(SocketClosed, match="4403"):
        await dial(SOCKET, headers=CROSS_SITE_LINK)


async def test_a_permitted_page_is_let_in_and_may_read_the_answer(
    permitted: None, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get(LIST, headers={"origin": PERMITTED, "sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PERMITTED


async def test_a_permitted_page_may_write(permitted: None, rest: httpx.AsyncClient) -> None:
    answer = await rest.post(LIST, json={}, headers={"origin": PERMITTED, "sec-fetch-site": "cross-site"})
    assert answer.status_code == 201
    assert answer.headers["access-control-allow-origin"] == PERMITTED


async def test_a_permitted_page_reads_refusals_too(permitted: None, rest: httpx.AsyncClient) -> None:
    answer = await rest.get(f"{LIST}/none", headers={"origin": PERMITTED})
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == PERMITTED


async def test_a_preflight_of_a_permitted_page_needs_no_credentials_and_names_what_is_allowed(
    accounts: None, permitted: None, rest: httpx.AsyncClient
) -> None:
    asked = {
        "origin": PERMITTED,
        "sec-fetch-site": "cross-site",
        "access-control-request-method": "PATCH",
        "access-control-request-headers": "authorization,content-type,x-session-api-key",
    }
    answer = await rest.options(LIST, headers=asked)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PERMITTED)
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert {"authorization", "content-type", "x-session-api-key"} <= set(
        answer.headers["access-control-allow-headers"].split(", ")
    )


async def test_a_preflight_of_a_foreign_page_is_refused(permitted: None, rest: httpx.AsyncClient) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    assert (await rest.options(LIST, headers=asked)).status_code == 403


async def test_a_permitted_page_opens_sockets(permitted: None, dial: Dial) -> None:
    headers = {"origin": PERMITTED, "sec-fetch-site": "cross-site"}
    assert (await (await dial(SOCKET, headers=headers)).receive())["type"] == "hello"


async def test_a_permitted_page_under_a_foreign_name_is_refused(
    permitted: None, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get(LIST, headers={"origin": PERMITTED, "host": "evil.example"})
    assert answer.status_code == 403


async def test_accounts_mode_checks_names_and_pages_too(accounts: None, rest: httpx.AsyncClient) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        assert (await rest.get("/health", headers=headers)).status_code == 403


async def test_a_page_without_tls_is_not_that_of_the_server_behind_tls(
    live: None, alice: User, rest: httpx.AsyncClient
) -> None:
    for scheme, status in (("https", 200), ("HTTPS", 200), ("http", 403), ("ftp", 403), ("", 403)):
        headers = {"origin": f"{scheme}://localhost"}
        assert (await rest.get(f"https://localhost{LIST}", headers=headers)).status_code == status


async def test_with_accounts_a_socket_is_opened_by_no_page_without_tls(
    accounts: None, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["chat.example"])
    await dial(SOCKET, headers={"host": "chat.example", "origin": "https://chat.example"})
    for scheme in ("http", "ws", ""):
        headers = {"host": "chat.example", "origin": f"{scheme}://chat.example"}
        with pytest.raises(SocketClosed, match="4403"):
            await dial(SOCKET, headers=headers)


async def test_with_accounts_a_page_of_this_machine_needs_no_tls(accounts: None, dial: Dial) -> None:
    headers = {"host": "localhost:8000", "origin": "http://localhost:8000"}
    await dial(SOCKET, headers=headers)
