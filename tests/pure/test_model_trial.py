"""A trial of the model that is set: what is asked, and what is wrong in words that say what to do."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from django.contrib.auth.models import User

from convserver.configuration import AuthMode
from sessions_app.outbound import hosts, model_trial
from sessions_app.outbound.model_trial import Finding, ModelSetup, TrialUnderWay, ask_model, try_model
from tests.support.people.web_browser import Browser, words
from tests.support.servers.model_server import Answer, Asked, model_server

KEY = "sk-1234567890"
LIST = Answer(body={"data": [{"id": "gpt-5"}, {"id": "other"}]})
REPLY = Answer(body={"choices": [{"message": {"content": "Hi"}}]})


def answers(*, models: Answer = LIST, completion: Answer = REPLY) -> Callable[[Asked], Answer]:
    return lambda asked: models if asked.method == "GET" else completion


async def ask(base_url: str, *, model: str = "openai/gpt-5", key: str = KEY) -> Finding:
    return await ask_model(ModelSetup(model=model, base_url=base_url, key=key))


@contextmanager
def listener(says: bytes) -> Iterator[str]:
    """Listen, and answer whoever connects with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


async def test_a_model_that_answers_is_asked_for_its_list_and_for_one_token() -> None:
    with model_server(answers()) as (base_url, asked):
        finding = await ask(base_url)
    assert finding == Finding(is_fault=False, text="The model works.")
    assert [(each.method, each.path, each.key) for each in asked] == [
        ("GET", "/v1/models", f"Bearer {KEY}"),
        ("POST", "/v1/chat/completions", f"Bearer {KEY}"),
    ]
    assert (asked[1].body["model"], asked[1].body["max_tokens"]) == ("gpt-5", 1)


async def test_a_server_without_a_list_is_asked_all_the_same() -> None:
    with model_server(answers(models=Answer(404))) as (base_url, _):
        assert not (await ask(base_url)).is_fault


async def test_a_model_that_is_listed_but_refuses_so_short_an_answer_is_no_fault() -> None:
    with model_server(answers(completion=Answer(400))) as (base_url, _):
        assert not (await ask(base_url)).is_fault


async def test_without_a_model_the_server_alone_is_tried() -> None:
    with model_server(answers()) as (base_url, asked):
        finding = await ask(base_url, model="")
    assert (finding.is_fault, len(asked), "Enter a model" in finding.text) == (False, 1, True)


async def test_without_a_key_none_is_sent() -> None:
    with model_server(answers()) as (base_url, asked):
        await ask(base_url, key="")
    assert {each.key for each in asked} == {""}


async def test_what_a_server_refuses_is_named(subtests: pytest.Subtests) -> None:
    for models, completion, said in [
        (Answer(401), REPLY, "rejected the key (401)"),
        (LIST, Answer(401), "rejected the key (401)"),  # the list is for everybody
        (LIST, Answer(402), "out of credits (402)"),
        (Answer(403), REPLY, "isn't allowed to use this (403)"),
        (Answer(404), Answer(404), "The path of the base URL is wrong (most end with /v1)"),
        (Answer(404), Answer(400), "the spelling of the model's name"),
        (Answer(body={"data": []}), Answer(404), "no model with this name"),
        (LIST, Answer(429), "rate limit was reached (429)"),
        (Answer(500), REPLY, "The server failed (500)"),
        (
            Answer(307, headers={"location": "http://127.0.0.1:1/v1"}),
            REPLY,
            "redirects to another address",
        ),
        (Answer(418), REPLY, "status 418"),
        (Answer(body="<!doctype html>"), REPLY, "leads to a web page, not to an API"),
        (Answer(body="[" * 2000), REPLY, "leads to a web page, not to an API"),
        (Answer(body="x" * (model_trial.ANSWER_MAX_BYTES + 1)), REPLY, "response is too long"),
        (Answer(body=f'{{"data":[{"1," * 100_000}1]}}'), REPLY, "response is too long"),
    ]:
        with subtests.test(models=models, completion=completion, said=said):
            with model_server(answers(models=models, completion=completion)) as (base_url, _):
                finding = await ask(base_url)
            assert (finding.is_fault, said in finding.text) == (True, True), finding


@pytest.mark.parametrize("body", ["3", '"text"', "[1]", '{"data": 7}', '{"data": [1, {"id": 2}]}', "{}"])
async def test_a_list_of_another_shape_is_no_list(body: str) -> None:
    with model_server(answers(models=Answer(body=body))) as (base_url, _):
        assert not (await ask(base_url)).is_fault


async def test_a_server_where_nothing_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    finding = await ask(f"http://127.0.0.1:{port}/v1")
    assert (finding.is_fault, "Connection refused" in finding.text) == (True, True)


async def test_a_name_that_leads_nowhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    finding = await ask("https://nowhere.invalid/v1")
    assert (finding.is_fault, "name wasn't found" in finding.text) == (True, True), finding


async def test_a_server_that_speaks_no_tls_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as place:
        finding = await ask(f"https://{place}/v1")
    assert (finding.is_fault, "doesn't use TLS" in finding.text) == (True, True), finding


async def test_a_server_that_speaks_no_http_is_told() -> None:
    with listener(b"220 mail.example.org ESMTP\r\n") as place:
        finding = await ask(f"http://{place}/v1")
    assert (finding.is_fault, "no HTTP server" in finding.text) == (True, True), finding


async def test_a_server_that_does_not_answer_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_trial, "TOTAL_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # who connects is not even accepted
        finding = await ask(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    assert (finding.is_fault, "didn't respond in time" in finding.text) == (True, True)


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ({"model": "", "base_url": ""}, "Enter a model"),
        ({"model": "mine/large", "base_url": ""}, "Enter the base URL"),
        ({"model": "m", "base_url": "nowhere"}, "starts with https://"),
        ({"model": "m", "base_url": "http://127.0.0.1:1", "key": "sk\n1"}, "contains invalid characters"),
        ({"model": "m", "base_url": "http://127.0.0.1:1", "key": "schlüssel"}, "contains invalid characters"),
    ],
)
async def test_what_cannot_be_asked_is_told(setup: dict[str, str], words: str) -> None:
    finding = await ask_model(ModelSetup(**{"key": KEY, **setup}))
    assert (finding.is_fault, words in finding.text) == (True, True), finding


async def test_an_address_that_cannot_be_one_is_told(
    subtests: pytest.Subtests, configured: Callable[..., None]
) -> None:
    for base_url in [
        *("http://xn--a/v1", "https://xn--xn--a/v1", f"http://{'a' * 64}.com/v1", "http://a..b/v1"),
        *("http://.a/v1", f"http://{'a.' * 127}b/v1", "http://[::1", "http://[1:2]/v1", "http://\ud800/v1"),
        *("http://a.example:99999/v1", "http://a.example:-1/v1", "http://a.example:0/v1"),
        *("http://a.example/\ud800", "http://", "http://:80/v1", "ftp://a.example/v1"),
    ]:
        for auth in [AuthMode.LOCAL, AuthMode.ACCOUNTS]:
            with subtests.test(base_url=base_url, auth=auth):
                configured(auth=auth)
                finding = await ask(base_url)
                assert (finding.is_fault, "starts with https://" in finding.text) == (True, True), finding


async def test_a_redirect_to_what_cannot_be_an_address_is_a_fault() -> None:
    for location in ("http://xn--a/v1", "http://127.0.0.1:99999/v1", "http://a..b/", "http://["):
        with model_server(answers(models=Answer(307, headers={"location": location}))) as (base_url, _):
            assert (await ask(base_url)).is_fault


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1"])
async def test_with_accounts_nothing_but_public_addresses_is_asked(accounts: None, host: str) -> None:
    with model_server(answers()) as (base_url, asked):
        finding = await ask(base_url.replace("127.0.0.1", host))
    assert (finding.is_fault, "public address" in finding.text, asked) == (True, True, [])


async def test_with_accounts_a_name_that_leads_inside_is_not_asked(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_server(answers()) as (base_url, asked):
        port = int(base_url.rpartition(":")[2].partition("/")[0])
        place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: [place])
        finding = await ask(f"http://models.example.org:{port}/v1")
    assert (finding.is_fault, "public address" in finding.text, asked) == (True, True, [])


async def test_with_accounts_a_name_is_looked_up_as_it_is_asked(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[object] = []

    def getaddrinfo(name: object, *arguments: object, **options: object) -> list[object]:
        names.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    await ask("http://straße.example.org/v1")  # older rules make a `strasse` of it, which is another server
    assert names == [b"xn--strae-oqa.example.org"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Everything sent, none of which leaves this process: nothing is there (404)."""
    requests: list[httpx.Request] = []

    async def refuse(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(404, stream=httpx.ByteStream(b""))

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", refuse)
    return requests


def looked_up(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
    """Let names lead to these addresses, to others each time, and then nowhere."""
    left = iter(answers)

    def getaddrinfo(name: object, port: object, *arguments: object, **options: object) -> list[object]:
        addresses = next(left, [])
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "nobody knows the name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_with_accounts_the_address_that_was_checked_is_asked_whatever_the_name_leads_to_next(
    accounts: None, monkeypatch: pytest.MonkeyPatch, sent: list[httpx.Request]
) -> None:
    looked_up(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    finding = await ask("https://models.example.org/v1")
    [request] = sent  # the second question would have gone elsewhere
    assert str(request.url) == "https://8.8.8.8/v1/models"
    assert request.headers["host"] == request.extensions["sni_hostname"] == "models.example.org"
    assert "public address" in finding.text


async def test_with_accounts_the_first_address_that_can_be_reached_is_asked(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_is_public", lambda address: True)
    with model_server(answers()) as (base_url, asked):
        port = base_url.rpartition(":")[2]
        places = ["127.0.0.2", "127.0.0.1"]
        looked_up(monkeypatch, places, places)
        finding = await ask(f"http://models.example.org:{port}")
    assert (finding.text, len(asked)) == ("The model works.", 2)


async def test_with_accounts_a_name_that_leads_nowhere_is_told_like_one_that_leads_inside(
    accounts: None, monkeypatch: pytest.MonkeyPatch, sent: list[httpx.Request]
) -> None:
    looked_up(monkeypatch)
    finding = await ask("https://models.example.org/v1")
    assert ("public address" in finding.text, sent) == (True, [])


async def test_with_accounts_a_proxy_may_know_names_that_lead_nowhere_here(
    accounts: None, monkeypatch: pytest.MonkeyPatch, sent: list[httpx.Request]
) -> None:
    looked_up(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.org:3128")
    await ask("https://models.example.org/v1")
    assert {request.url.host for request in sent} == {"models.example.org"}


async def test_with_accounts_no_proxy_is_asked_for_a_name_that_leads_inside(
    accounts: None, monkeypatch: pytest.MonkeyPatch, sent: list[httpx.Request]
) -> None:
    looked_up(monkeypatch, ["10.0.0.1"])
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example.org:3128")
    finding = await ask("https://models.example.org/v1")
    assert ("public address" in finding.text, sent) == (True, [])


async def test_a_proxy_that_cannot_be_used_is_told(
    subtests: pytest.Subtests, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for auth in [AuthMode.LOCAL, AuthMode.ACCOUNTS]:
        for proxy in [
            "socks5://127.0.0.1:1080",
            "socks://127.0.0.1:1",
            "ftp://127.0.0.1",
            "http://a:99999",
            "http://[",
        ]:
            with subtests.test(auth=auth, proxy=proxy):
                configured(auth=auth)
                monkeypatch.setenv("ALL_PROXY", proxy)
                finding = await ask("https://models.example.org/v1")
                assert finding == Finding(
                    is_fault=True, text="The proxy configured for this server can't be used."
                )


async def test_what_is_excepted_from_a_proxy_is_asked_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as place:
        finding = await ask(f"https://{place}/v1")
    assert "doesn't use TLS" in finding.text


# How many at a time


class Held:
    """Answers that are held back."""

    def __init__(self) -> None:
        self._asked = threading.Semaphore(0)
        self._released = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        self._asked.release()
        self._released.wait(30)
        return answers()(asked)

    async def until_asked(self) -> None:
        assert await asyncio.to_thread(self._asked.acquire, timeout=30)

    def release(self) -> None:
        """Answer, now and from now on."""
        self._released.set()


async def test_a_user_has_one_trial_at_a_time_and_what_was_to_be_saved_is(
    visitor: Browser, alice: User
) -> None:
    held = Held()
    form = {"model": "openai/gpt-5", "key": KEY, "do": "test"}
    with model_server(held) as (base_url, _):
        first = asyncio.create_task(visitor.send("/settings/model", {**form, "base_url": base_url}))
        await held.until_asked()
        second = await visitor.send(
            "/settings/model", {**form, "base_url": base_url, "model": "openai/other"}
        )
        held.release()
        assert (await first).status_code == 302
        third = await visitor.send("/settings/model", {**form, "base_url": base_url})
    assert (second.status_code, "Saved. Another test is running" in words(second)) == (429, True)
    assert 'value="openai/other"' in second.text
    assert third.status_code == 302
    assert "Saved. The model works." in words(await visitor.get("/settings"))


async def test_few_trials_are_under_way_at_a_time_whoever_wants_them() -> None:
    held = Held()
    with model_server(held) as (base_url, _):
        setup = ModelSetup(model="openai/gpt-5", base_url=base_url, key=KEY)
        users = range(model_trial.TRIALS_MAX)
        tried = [asyncio.create_task(try_model(user_id, setup)) for user_id in users]
        for _ in users:
            await held.until_asked()
        with pytest.raises(TrialUnderWay):
            await try_model(model_trial.TRIALS_MAX, setup)
        held.release()
        findings = [*await asyncio.gather(*tried), await try_model(model_trial.TRIALS_MAX, setup)]
    assert {finding.text for finding in findings} == {"The model works."}


async def test_no_finding_repeats_the_key() -> None:
    for status in (200, 400, 401, 403, 404, 429, 500):
        with model_server(answers(models=Answer(status, KEY))) as (base_url, _):
            assert KEY not in (await ask(base_url)).text


def test_a_setup_is_not_printed_with_its_key() -> None:
    assert KEY not in repr(ModelSetup(model="m", base_url="", key=KEY))
