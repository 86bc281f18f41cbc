"""The log-in of programs that a person approves in a browser (RFC 8628), and what they ask after it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from convserver.passwords import login_throttle
from sessions_app import astore, device_logins
from sessions_app.models import ApiToken, DeviceLogin
from sessions_app.models.device_logins import KEPT_S
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native/conversations"
CHOICES = {"name": "shell", "rights": "read write run", "days": "90"}
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT = "tests/1.0"


async def begin(rest: httpx.AsyncClient) -> dict[str, Any]:
    answer = await rest.post("/oauth/device/authorize", json={}, headers={"user-agent": CLIENT})
    assert answer.status_code == 200
    codes: dict[str, Any] = answer.json()
    return codes


async def poll(rest: httpx.AsyncClient, codes: dict[str, Any], **more: str) -> tuple[int, dict[str, Any]]:
    form = {"device_code": codes["device_code"], **more}
    answer = await rest.post("/oauth/device/token", data=form)
    return answer.status_code, answer.json()


async def error_of(rest: httpx.AsyncClient, codes: dict[str, Any], **more: str) -> str:
    status, body = await poll(rest, codes, **more)
    assert status == 400
    assert body["error_description"]
    error: str = body["error"]
    return error


async def decide(
    visitor: Browser, codes: dict[str, Any], decision: str = "approve", **more: str
) -> httpx.Response:
    form = {"user_code": codes["user_code"], "decision": decision, **CHOICES, **more}
    return await visitor.send("/device", form)


async def set_back(seconds: float, *columns: str) -> None:
    """Make the moments in these columns of all logins earlier."""

    def change() -> None:
        for row in DeviceLogin.objects.all():
            moments = {name: getattr(row, name) - timedelta(seconds=seconds) for name in columns}
            DeviceLogin.objects.filter(pk=row.pk).update(**moments)

    await astore.call(change)


@pytest.fixture
async def alices(accounts: None, visitor: Browser, alice: User) -> Browser:
    await visitor.log_in(alice)
    return visitor


# The whole way


async def test_an_approved_program_gets_a_token_of_the_person_who_approved(
    alices: Browser, alice: User, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    assert await error_of(rest, codes) == "authorization_pending"
    assert (await decide(alices, codes)).headers["location"] == "/device"
    assert "Approved. Go back to the program" in words(await alices.get("/device"))
    status, token = await poll(rest, codes, grant_type=GRANT_TYPE)
    assert (status, token["token_type"]) == (200, "Bearer")
    assert 0 < 90 * 24 * 3600 - token["expires_in"] < 60
    row = await astore.call(ApiToken.objects.valid().matching(token["access_token"]).get)
    assert (row.user_id, row.name, row.scopes) == (alice.pk, "shell", "read write run")


async def test_the_token_opens_what_its_user_owns_and_nothing_else(
    alices: Browser, conversation: object, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    headers = {"authorization": f"Bearer {(await poll(rest, codes))[1]['access_token']}"}
    assert [each["id"] for each in (await rest.get(NATIVE, headers=headers)).json()["conversations"]] == [
        "talk"
    ]
    assert (await rest.get("/api/v1/users/me", headers=headers)).status_code == 200
    assert (await rest.get("/api/native/tokens", headers=headers)).status_code == 403


async def test_a_strangers_approval_opens_the_strangers_account(
    accounts: None, conversation: object, visitor: Browser, bob: User, rest: httpx.AsyncClient
) -> None:
    await visitor.log_in(bob)
    codes = await begin(rest)
    await decide(visitor, codes)
    headers = {"authorization": f"Bearer {(await poll(rest, codes))[1]['access_token']}"}
    assert (await rest.get(NATIVE, headers=headers)).json()["conversations"] == []


async def test_nobody_approves_without_a_login(
    accounts: None, visitor: Browser, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    answer = await decide(visitor, codes)
    assert answer.headers["location"].startswith("/ui/login?")
    assert await error_of(rest, codes) == "authorization_pending"


async def test_a_login_leads_back_to_the_code(
    accounts: None, visitor: Browser, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    page = urlsplit(codes["verification_uri_complete"])
    answer = await visitor.get(f"{page.path}?{page.query}")
    led = parse_qs(urlsplit(answer.headers["location"]).query)["next"]
    assert led == [f"/device?user_code={codes['user_code']}"]


async def test_an_approval_without_a_csrf_token_is_refused(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    form = {"user_code": codes["user_code"], "decision": "approve", **CHOICES}
    assert (await alices.http.post("/device", data=form)).status_code == 403
    assert await error_of(rest, codes) == "authorization_pending"


async def test_codes_are_stored_as_digests_only(accounts: None, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    stored = str(await astore.call(lambda: list(DeviceLogin.objects.values())))
    assert not any(codes[name] in stored for name in ("device_code", "user_code"))
    assert re.fullmatch(r"[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}", codes["user_code"])
    assert (codes["expires_in"], codes["interval"]) == (600, 5)
    assert codes["verification_uri"] == "http://localhost/device"


async def test_approval_and_token_are_logged_for_the_user(
    alices: Browser, alice: User, rest: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    codes = await begin(rest)
    with caplog.at_level(logging.INFO):
        await decide(alices, codes)
        token = (await poll(rest, codes))[1]["access_token"]
    said = caplog.text
    assert "Program's login approved" in said
    assert "Token created" in said
    assert not any(secret in said for secret in (token, codes["device_code"], codes["user_code"]))


async def test_waiting_polls_are_not_logged_as_refusals(
    accounts: None, rest: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    codes = await begin(rest)
    with caplog.at_level(logging.INFO):
        await poll(rest, codes)
        assert "Request refused" not in caplog.text
        await poll(rest, {"device_code": "unknown"})
        assert "Request refused" in caplog.text
        assert "'code': 'invalid_grant'" in caplog.text


# How a login ends otherwise


async def test_a_denied_login_stays_denied(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    await decide(alices, codes, "deny")
    assert "Denied. The program gets no access." in words(await alices.get("/device"))
    assert await error_of(rest, codes) == "access_denied"
    assert (await decide(alices, codes)).status_code == 400
    assert await error_of(rest, codes) == "access_denied"


async def test_a_decision_that_is_not_named_denies(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    await decide(alices, codes, "")
    assert await error_of(rest, codes) == "access_denied"


async def test_a_login_expires(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    await set_back(600, "expires_at")
    assert (await decide(alices, codes)).status_code == 400
    assert await error_of(rest, codes) == "expired_token"


async def test_an_approved_login_expires_as_well(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    await set_back(600, "expires_at")
    assert await error_of(rest, codes) == "expired_token"
    assert not await astore.call(ApiToken.objects.exists)


async def test_a_device_code_gets_one_token(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    assert (await poll(rest, codes))[0] == 200
    assert await error_of(rest, codes) == "invalid_grant"
    assert await astore.call(ApiToken.objects.count) == 1


async def test_of_two_polls_at_once_one_gets_the_token(
    alices: Browser, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    row = await astore.call(DeviceLogin.objects.select_related("user").get)
    assert (await poll(rest, codes))[0] == 200
    # The other has read the row before.
    assert await astore.change(device_logins._granted, row) == device_logins.UNKNOWN


async def test_a_user_code_is_answered_once(alices: Browser, bob: User, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    assert "You approved this login" in words(await alices.get(f"/device?user_code={codes['user_code']}"))
    await alices.log_in(bob)
    assert (await decide(alices, codes, "deny")).status_code == 400
    assert (await poll(rest, codes))[0] == 200


async def test_a_login_of_a_user_who_was_deactivated_since_is_denied(
    alices: Browser, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    await astore.call(User.objects.update, is_active=False)
    assert await error_of(rest, codes) == "access_denied"


async def test_a_program_that_polls_too_often_is_slowed_down_more_and_more(
    accounts: None, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    assert await error_of(rest, codes) == "authorization_pending"
    answers = [(await poll(rest, codes))[1] for _ in range(13)]
    assert {each["error"] for each in answers} == {"slow_down"}
    assert [each["interval"] for each in answers[:3]] == [10, 15, 20]
    assert answers[-1]["interval"] == 60
    await set_back(60, "polled_at")
    assert await error_of(rest, codes) == "authorization_pending"


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({}, "invalid_request"),
        ({"device_code": ""}, "invalid_request"),
        ({"device_code": ["one", "two"]}, "invalid_request"),
        ({"device_code": "one", "grant_type": "password"}, "unsupported_grant_type"),
        ({"device_code": "one", "grant_type": GRANT_TYPE}, "invalid_grant"),
        ({"device_code": "\0\ud7ff"}, "invalid_grant"),
    ],
)
async def test_a_poll_that_makes_no_sense_is_told_why(
    accounts: None, rest: httpx.AsyncClient, form: dict[str, Any], error: str
) -> None:
    answer = await rest.post("/oauth/device/token", data=form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


async def test_ended_logins_are_deleted_after_an_hour(accounts: None, rest: httpx.AsyncClient) -> None:
    await begin(rest)
    assert await astore.change(device_logins.prune) == 0
    await set_back(600 + KEPT_S, "expires_at")
    await begin(rest)
    assert await astore.change(device_logins.prune) == 1
    assert await astore.call(DeviceLogin.objects.count) == 1


async def test_one_address_has_few_logins_that_wait(
    accounts: None, rest: httpx.AsyncClient, visitor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logins, "OF_CLIENT_MAX", 2)
    for _ in range(2):
        await begin(rest)
    answer = await rest.post("/oauth/device/authorize", json={})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    assert answer.json()["detail"].startswith("Too many logins from this address")
    await begin(visitor.http)


async def test_all_addresses_together_have_a_bounded_number_of_logins(
    accounts: None, rest: httpx.AsyncClient, visitor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logins, "IN_ALL_MAX", 1)
    await begin(rest)
    assert (await visitor.http.post("/oauth/device/authorize")).status_code == 429
    await set_back(600, "expires_at")
    await begin(visitor.http)


# The page


async def test_the_page_shows_who_asks_and_warns_of_codes_from_others(
    alices: Browser, alice: User, rest: httpx.AsyncClient
) -> None:
    headers = {"user-agent": "<script>alert(1)</script>"}
    answer = await alices.http.post("/oauth/device/authorize", headers=headers)
    own, other = answer.json(), await begin(rest)
    page = await alices.get(f"/device?user_code={own['user_code']}")
    said = words(page)
    assert "<script>alert" not in page.text
    assert "<script>alert(1)</script>" in said
    assert f"A program asks for access to the account {alice.get_username()} ." in said
    assert own["user_code"] in said
    assert "If somebody sent you the link or the code, deny it" in said
    assert "This is not the address that you are using now." not in said
    elsewhere = words(await alices.get(f"/device?user_code={other['user_code']}"))
    assert "127.0.0.1 This is not the address that you are using now." in elsewhere
    assert CLIENT in elsewhere


@pytest.mark.parametrize(
    "spelling", [str.lower, lambda code: code.replace("-", ""), lambda code: f" {code} "]
)
async def test_a_code_may_be_typed_in_any_case_with_or_without_its_dash(
    alices: Browser, rest: httpx.AsyncClient, spelling: Callable[[str], str]
) -> None:
    codes = await begin(rest)
    answer = await alices.http.get("/device", params={"user_code": spelling(codes["user_code"])})
    assert codes["user_code"] in answer.text


@pytest.mark.parametrize("code", ["", "BCDF", "AEIO-UAEI", "BCDF-GHJ1", "x" * 200, "<script>"])
async def test_what_is_no_code_is_told_and_not_counted_as_a_guess(alices: Browser, code: str) -> None:
    for _ in range(login_throttle.GUESSES_MAX + 1):
        answer = await alices.http.get("/device", params={"user_code": code})
        assert answer.status_code == 400
    assert "<script>" not in answer.text.partition("<main")[2].partition("</main>")[0]


async def test_wrong_codes_are_throttled_and_then_even_a_right_one_is_refused(
    alices: Browser, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    said = [await alices.get("/device?user_code=BBBB-BBBB") for _ in range(login_throttle.GUESSES_MAX)]
    assert {each.status_code for each in said} == {400}
    assert "That was the last attempt" in words(said[-1])
    answer = await decide(alices, codes)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "300")
    assert await error_of(rest, codes) == "authorization_pending"


async def test_a_login_of_ones_own_gives_no_new_attempts(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    pages = ["BBBB-BBBB", codes["user_code"]] * login_throttle.GUESSES_MAX
    said = [(await alices.get(f"/device?user_code={code}")).status_code for code in pages]
    assert said[::2].count(400) == login_throttle.GUESSES_MAX
    assert said[1:-1:2] == [200] * (login_throttle.GUESSES_MAX - 1)
    assert said[-1] == 429


async def test_the_person_chooses_what_the_program_may_do_and_for_how_long(
    alices: Browser, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    await decide(alices, codes, rights="read", days="7")
    status, token = await poll(rest, codes)
    row = await astore.call(ApiToken.objects.get)
    assert (status, row.scopes) == (200, "read")
    assert 0 < 7 * 24 * 3600 - token["expires_in"] < 60


@pytest.mark.parametrize("missing", [{"rights": ""}, {"rights": "all"}, {"days": ""}, {"name": ""}])
async def test_an_approval_that_leaves_something_open_approves_nothing(
    alices: Browser, rest: httpx.AsyncClient, missing: dict[str, str]
) -> None:
    codes = await begin(rest)
    assert (await decide(alices, codes, **missing)).status_code == 400
    assert await error_of(rest, codes) == "authorization_pending"


async def test_a_name_that_is_taken_is_refused_and_another_one_is_offered(
    alices: Browser, alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(ApiToken.issue, alice.pk, device_logins.TOKEN_NAME)
    codes = await begin(rest)
    refused = await decide(alices, codes, name=device_logins.TOKEN_NAME)
    assert (refused.status_code, "There is a token named" in words(refused)) == (400, True)
    page = await alices.get(f"/device?user_code={codes['user_code']}")
    assert 'value="command line 2"' in page.text


async def test_a_name_that_was_taken_after_the_approval_gets_a_number(
    alices: Browser, alice: User, rest: httpx.AsyncClient
) -> None:
    codes = await begin(rest)
    await decide(alices, codes)
    await astore.call(ApiToken.issue, alice.pk, "shell")
    assert (await poll(rest, codes))[0] == 200
    names = await astore.call(lambda: list(ApiToken.objects.order_by("pk").values_list("name", flat=True)))
    assert names == ["shell", "shell 2"]


async def test_the_page_leads_to_no_other_site(alices: Browser, rest: httpx.AsyncClient) -> None:
    codes = await begin(rest)
    answer = await decide(alices, codes, next="https://elsewhere.example/", redirect_uri="//elsewhere")
    assert answer.headers["location"] == "/device"


# Where there are no accounts


async def test_where_everybody_is_the_local_user_a_login_is_approved_at_once(
    rest: httpx.AsyncClient, visitor: Browser
) -> None:
    for name in ("command line", "command line 2"):
        codes = await begin(rest)
        status, token = await poll(rest, codes)
        assert status == 200
        row = await astore.call(ApiToken.objects.valid().matching(token["access_token"]).get)
        assert (row.name, row.scopes) == (name, "read write run")
    page = await visitor.get(f"/device?user_code={codes['user_code']}")
    assert "You approved this login" in words(page)


async def test_a_server_key_closes_local_mode_for_programs_too(
    rest: httpx.AsyncClient, visitor: Browser, configured: Callable[..., None]
) -> None:
    configured(session_api_key="the server's key")
    codes = await begin(rest)
    assert await error_of(rest, codes) == "authorization_pending"
    await visitor.send("/ui/key", {"key": "the server's key"}, page="/ui/key")
    await decide(visitor, codes)
    assert (await poll(rest, codes))[0] == 200


# What the command line asks after its login


async def test_a_key_of_a_model_never_leaves_the_server(rest: httpx.AsyncClient) -> None:
    answer = await rest.post("/api/settings", json={"llm_model": "openai/gpt-x", "llm_api_key": "sk-secret"})
    assert answer.status_code == 200
    assert (await rest.get("/api/keys/llm/byor")).json() == {"key": None}


async def test_a_token_is_told_its_name_and_never_its_text(
    accounts: None, alice: User, rest: httpx.AsyncClient
) -> None:
    row, text = await astore.call(ApiToken.issue, alice.pk, "laptop")
    answer = await rest.get("/api/keys/current", headers={"authorization": f"Bearer {text}"})
    assert answer.json() == {
        "key": None,
        "id": row.public_id,
        "name": "laptop",
        "user_id": str(alice.pk),
    }
    assert text not in answer.text


async def test_the_address_that_the_command_line_prints_leads_to_the_page(
    alices: Browser, conversation: object
) -> None:
    answer = await alices.get("/conversations/talk")
    assert (answer.status_code, answer.headers["location"]) == (302, "/c/talk")
    assert (await alices.get("/conversations/..%2f%2felsewhere")).status_code == 404
    odd = await alices.get("/conversations/%2Felsewhere.example")
    assert not odd.headers.get("location", "/").startswith("//")


async def test_an_unknown_address_below_oauth_is_answered_for_programs(rest: httpx.AsyncClient) -> None:
    answer = await rest.get("/oauth/nothing")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


def test_a_login_expires_in_ten_minutes(alice: User) -> None:
    device_logins.begin("127.0.0.1", CLIENT)
    row = DeviceLogin.objects.get()
    assert 590 < (row.expires_at - timezone.now()).total_seconds() <= 600
