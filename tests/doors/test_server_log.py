"""The server's log: a line for each act and each refusal, with ids, and nothing secret."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse

from conversations import server_log
from conversations.events import ConversationRef
from conversations.outages import Outage
from conversations.server_log import Allowance, log_act, log_on_commit
from conversations.store import creation, deletion
from convserver.configuration import LogFormat, LogLevel
from convserver.passwords import login_throttle
from convserver.quotas import Quotas
from convserver.serving import http, log_format, request_log
from sessions_app import astore
from sessions_app.models import ApiToken, Grant, Scope, SecretKind
from sessions_app.outbound import model_trial
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.conftest import Connect, Dial, Join, once
from tests.support.people.clients import HTTP, Server
from tests.support.people.scripted_agent import until_here
from tests.support.people.web_browser import Browser

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native/conversations"
SECRET = "s3cret-that-nobody-reads"


class Lines(logging.Handler):
    """What is written while a test runs, as the JSON format writes it."""

    def __init__(self) -> None:
        super().__init__()
        described = log_format.settings(LogFormat.JSON, LogLevel.INFO)["formatters"]["line"]
        self.setFormatter(described.pop("()")(**described))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.texts.append(self.format(record))

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the facts of the lines of this kind, without those that every line has."""
        found = [line for line in map(json.loads, self.texts) if line["event"] == event]
        for line in found:
            del line["event"], line["timestamp"], line["level"], line["logger"]
        return found


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Keep what is written."""
    kept = Lines()
    logging.getLogger().addHandler(kept)
    yield kept
    logging.getLogger().removeHandler(kept)


# What is done


def test_a_conversation_that_is_made_deleted_and_restored_has_a_line_each(alice: User, lines: Lines) -> None:
    made = creation.create(alice, conversation_id="talk")
    deletion.soft_delete(made)
    deletion.soft_delete(made)
    deletion.restore(made)
    ids = {"conversation": "talk", "owner": alice.pk}
    assert lines.of("Conversation created") == [{**ids, "version": "V0"}]
    assert [lines.of(f"Conversation {act}") for act in ("deleted", "restored")] == [[ids], [ids]]


async def test_a_conversation_that_a_join_makes_has_a_line(join: Join, alice: User, lines: Lines) -> None:
    await (await join("new")).replayed()
    await (await join("new")).replayed()
    made = lines.of("Conversation created")
    assert made == [{"conversation": "new", "owner": alice.pk, "version": "V0"}]


@pytest.mark.needs_engine
def test_what_is_not_committed_is_not_written(database: None, lines: Lines) -> None:
    with transaction.atomic():
        log_on_commit("Thought of")
        transaction.set_rollback(True)
    assert lines.of("Thought of") == []


async def test_an_agent_that_starts_and_stops_has_a_line_each_with_the_epoch(
    join: Join, alice: User, lines: Lines
) -> None:
    client = await join("talk")
    await client.send({"type": "message", "id": 1, "text": SECRET})
    await client.until("event", kind="turn")
    await client.send({"type": "stop", "id": 2})
    await client.until("ack", id=2)
    ids = {"conversation": "talk", "owner": alice.pk, "epoch": 1}
    assert lines.of("Agent started") == [ids]
    assert lines.of("Agent stopped") == [{**ids, "ended_by": "stopped"}]
    assert not any(SECRET in text for text in lines.texts)


async def test_appends_have_no_lines(join: Join, conversation: ConversationRef, lines: Lines) -> None:
    client = await join(conversation)
    await client.replayed()
    before = len(lines.texts)
    for number in range(5):
        await client.send({"type": "event", "id": number, "event": {"action": "null"}})
        await client.until("ack", id=number)
    assert lines.texts[before:] == []


@once
def test_a_token_that_is_made_and_revoked_has_a_line_each(alice: User, lines: Lines) -> None:
    token, text = ApiToken.issue(alice.pk, "laptop")
    token.revoke()
    ids = {"token": token.pk, "user": alice.pk}
    assert lines.of("Token created") == lines.of("Token revoked") == [ids]
    assert not any(text in line for line in lines.texts)


async def test_whatever_opens_something_is_logged_with_the_address_that_it_was_asked_from(
    accounts: None, live: None, alice: User, lines: Lines
) -> None:
    browser = Browser("10.7.7.7")
    await browser.log_in(alice)
    await browser.send("/settings/tokens", {"label": "laptop", "id": "a" * 32})
    token = await astore.call(ApiToken.objects.get)
    await browser.send("/settings/tokens/revoke", {"token": token.public_id})
    await browser.http.aclose()
    for act in ("Token created", "Token revoked"):
        found = [(line["user"], line["address"]) for line in lines.of(act)]
        assert found == [(alice.pk, "10.7.7.7")], act


@once
def test_settings_and_secrets_that_change_are_named_and_not_shown(alice: User, lines: Lines) -> None:
    key = {SettingSecret.LLM_API_KEY: SECRET}
    user_settings.change_settings(alice.pk, {"llm_model": SECRET, "language": "en"}, secrets=key)
    user_settings.change_settings(alice.pk, {}, secrets={SettingSecret.LLM_API_KEY: ""})
    ids = {"user": alice.pk, "kind": SecretKind.SETTING, "name": "llm_api_key"}
    assert lines.of("Settings changed") == [{"user": alice.pk, "settings": "language,llm_model"}]
    assert lines.of("Secret stored") == lines.of("Secret removed") == [ids]
    assert not any(SECRET in text for text in lines.texts)


@once
async def test_a_login_has_a_line_with_the_address(
    accounts: None, visitor: Browser, bob: User, lines: Lines
) -> None:
    await visitor.send("/ui/login", {"username": "bob", "password": "bob's password"})
    (line,) = lines.of("Login")
    assert (line["user"], line["by"]) == (bob.pk, "password")
    assert line["address"].startswith("10.")


@once
@pytest.mark.parametrize("name", ["bob", SECRET])
async def test_a_login_that_failed_has_a_line_with_the_address_and_nothing_that_was_typed(
    accounts: None, visitor: Browser, bob: User, lines: Lines, name: str
) -> None:
    await visitor.send("/ui/login", {"username": name, "password": SECRET})
    (line,) = lines.of("Login failed")
    assert (line.get("user"), line["by"]) == (bob.pk if name == "bob" else None, "password")
    assert line["address"].startswith("10.")
    assert not any(SECRET in text for text in lines.texts)


@once
async def test_what_staff_change_in_the_admin_has_a_line_with_who_it_was(
    accounts: None, visitor: Browser, alice: User, bob: User, lines: Lines
) -> None:
    await visitor.log_in(alice)
    form = {"username": "bob", "is_active": "on", "email": f"{SECRET}@example.org"}
    times = {f"{name}_{part}": "" for name in ("last_login", "date_joined") for part in "01"}
    answer = await visitor.send(f"/admin/auth/user/{bob.pk}/change/", {**form, **times})
    (line,) = lines.of("Admin: Changed")
    assert answer.status_code == 302
    assert (line["by_user"], line["row"], line["key"]) == (alice.pk, "auth.user", bob.pk)
    assert not any(SECRET in text for text in lines.texts)


# What is refused


@once
async def test_a_refused_request_has_one_line_without_its_query(
    rest: httpx.AsyncClient, alice: User, lines: Lines
) -> None:
    answer = await rest.post(f"{NATIVE}/nix/events?key={SECRET}", json={"type": SECRET})
    (line,) = lines.of("Request refused")
    assert answer.status_code == line.pop("status") == 404
    assert line.pop("request")
    assert line == {
        "code": "not_found",
        "method": "POST",
        "path": f"{NATIVE}/nix/events",
        "conversation": "nix",
        "user": alice.pk,
        "address": "127.0.0.1",
    }
    assert len(lines.texts) == 1
    assert SECRET not in lines.texts[0]


@once
async def test_an_id_that_somebody_made_up_is_escaped_and_cut(rest: httpx.AsyncClient, lines: Lines) -> None:
    await rest.delete(f"/agent/api/conversations/x%1b%5B31m{'x' * 300}")
    (line,) = lines.of("Request refused")
    assert line["conversation"].startswith("x\\x1b[31mx")
    assert len(line["conversation"]) < 210


@once
def test_text_lines_have_no_character_that_a_terminal_obeys() -> None:
    described = log_format.settings(LogFormat.TEXT, LogLevel.INFO)["formatters"]["line"]
    hostile = "\x1b]0;\x07\x7f\x9b\u202e\u2028\r\n\ud800"
    try:
        raise ValueError(hostile)
    except ValueError:
        record = logging.LogRecord("other", logging.ERROR, "", 0, "%s", (hostile,), sys.exc_info())
    record_of_ours = logging.LogRecord(
        "ours", logging.INFO, "", 0, {"event": "Act", "id": hostile}, None, None
    )
    record_of_ours.__dict__.update(_name="info", _logger=None)
    formatter = described.pop("()")(**described)
    written = formatter.format(record) + formatter.format(record_of_ours)
    assert {character for character in written if not character.isprintable()} <= {"\n"}
    assert written.count("\\u202e") == 3


@once
async def test_a_wrong_key_has_a_line_with_the_address(
    accounts: None, rest: httpx.AsyncClient, lines: Lines
) -> None:
    await rest.get(NATIVE, headers={"X-Session-API-Key": SECRET})
    (line,) = lines.of("Request refused")
    assert json.loads(lines.texts[0])["level"] == "warning"
    assert (line["status"], line["address"]) == (401, "127.0.0.1")
    assert not any(SECRET in text for text in lines.texts)


@once
@pytest.mark.parametrize(
    ("path", "status", "code", "conversation"),
    [
        (f"{NATIVE}/nix", 404, "not_found", "nix"),
        (f"{NATIVE}/talk/run", 405, "method_not_allowed", "talk"),
        (f"{NATIVE}?limit=0", 400, "invalid", None),
        ("/api/v1/app-conversations?ids=", 422, None, None),
    ],
)
async def test_a_question_without_an_answer_has_one_line_of_the_lowest_level(
    rest: httpx.AsyncClient,
    alice: User,
    lines: Lines,
    path: str,
    status: int,
    code: str | None,
    conversation: str | None,
) -> None:
    answer = await rest.get(f"{path}{'&' if '?' in path else '?'}key={SECRET}")
    assert [json.loads(text)["level"] for text in lines.texts] == ["info"]
    (line,) = lines.of("Request refused")
    facts = {"status": status, "code": code, "method": "GET", "path": path.partition("?")[0]}
    facts |= {"conversation": conversation, "user": alice.pk, "address": "127.0.0.1"}
    assert answer.status_code == status
    assert line.pop("request")
    assert line == {name: fact for name, fact in facts.items() if fact is not None}


@once
async def test_a_page_that_is_not_there_has_one_line_of_the_lowest_level(
    rest: httpx.AsyncClient, lines: Lines
) -> None:
    await rest.get(f"/nix?key={SECRET}")
    assert [json.loads(text)["level"] for text in lines.texts] == ["info"]
    (line,) = lines.of("Request refused")
    assert (line["status"], line["path"], line["address"]) == (404, "/nix", "127.0.0.1")


@once
async def test_questions_beyond_the_bound_silence_no_warning(
    rest: httpx.AsyncClient, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server_log._allowances, logging.INFO, Allowance(0))
    await rest.get("/nix")
    await rest.post("/nix")
    assert [line["method"] for line in lines.of("Request refused")] == ["POST"]


@once
async def test_a_request_from_elsewhere_has_a_line(rest: httpx.AsyncClient, lines: Lines) -> None:
    await rest.post(NATIVE, headers={"origin": "https://elsewhere.example"})
    (line,) = lines.of("Request refused")
    assert (line["status"], line["code"]) == (403, "foreign_origin")


@once
async def test_a_frame_that_is_refused_by_rest_has_a_line_with_its_code(
    accounts: None, rest: httpx.AsyncClient, conversation: ConversationRef, alice: User, lines: Lines
) -> None:
    _, key = await astore.call(ApiToken.issue, alice.pk, "reader", Grant(scopes=[Scope.READ]))
    frame = {"type": "message", "text": SECRET}
    headers = {"Authorization": f"Bearer {key}"}
    await rest.post(f"{NATIVE}/talk/events", json=frame, headers=headers)
    (line,) = lines.of("Request refused")
    assert (line["status"], line["code"]) == (403, "scope_too_small")


@once
async def test_a_log_in_that_has_to_wait_has_a_line_with_a_code_and_the_next_refusal_has_another(
    accounts: None, visitor: Browser, rest: httpx.AsyncClient, lines: Lines
) -> None:
    for _ in range(login_throttle.GUESSES_MAX + 1):
        await visitor.send("/ui/login", {"username": "nobody", "password": "another"})
    await rest.get("/nix", headers={"X-Session-API-Key": ""})
    refused = [(line["status"], line.get("code")) for line in lines.of("Request refused")]
    assert refused == [(429, "too_many_attempts"), (404, None)]


@once
async def test_a_setting_that_is_refused_for_now_has_a_line_with_a_code(
    visitor: Browser,
    alice: User,
    lines: Lines,
    configured: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured(quotas=Quotas(tokens=1))
    await astore.call(ApiToken.issue, alice.pk, "phone")
    monkeypatch.setattr(model_trial, "TRIALS_MAX", 0)
    await visitor.send("/settings/tokens", {"label": "laptop", "id": "a" * 32}, page="/settings")
    await visitor.send("/settings/model", {"model": "openai/gpt-5", "do": "test"}, page="/settings")
    refused = [(line["status"], line.get("code")) for line in lines.of("Request refused")]
    assert refused == [(429, "quota_exceeded"), (429, "trial_under_way")]


@once
async def test_a_frame_that_is_refused_has_a_line_with_the_conversation(
    join: Join, conversation: ConversationRef, alice: User, lines: Lines
) -> None:
    client = await join(conversation)
    await client.send({"type": "event", "id": 1, "event": {"neither": SECRET}})
    await client.until("error", id=1)
    ids = {"conversation": conversation.public_id, "owner": alice.pk, "user": alice.pk}
    assert lines.of("Frame refused") == [{"door": "native", "code": "invalid_event", **ids}]
    assert not any(SECRET in text for text in lines.texts)


@once
async def test_an_event_that_the_v0_socket_refuses_has_a_line(
    connect: Connect, conversation: ConversationRef, lines: Lines
) -> None:
    client = await connect(conversation.public_id)
    await client.asked({"neither": SECRET})
    (line,) = lines.of("Frame refused")
    assert (line["door"], line["conversation"]) == ("v0", conversation.public_id)


@once
async def test_a_reader_of_a_history_that_was_replaced_has_a_line_at_each_door(
    join: Join, connect: Connect, conversation: ConversationRef, alice: User, lines: Lines
) -> None:
    await (await join(conversation, after=7)).until("error")
    await connect(conversation.public_id, latest_event_id=7)
    facts = {"code": "cursor_ahead", "conversation": conversation.public_id, "owner": alice.pk, "after": 7}
    await until_here(lambda: len(lines.of("Cursor refused")) == 2)
    assert lines.of("Cursor refused") == [{**facts, "last_seq": -1}] * 2


@once
async def test_a_socket_that_nobody_is_let_into_has_a_line(accounts: None, dial: Dial, lines: Lines) -> None:
    client = await dial("/ws/conversations/talk", token=SECRET)
    await client.closed()
    (line,) = lines.of("Socket refused")
    assert (line["code"], line["path"]) == (4401, "/ws/conversations/talk")
    assert not any(SECRET in text for text in lines.texts)


def test_refusals_beyond_the_bound_are_counted_and_the_next_line_says_how_many() -> None:
    now = 0.0
    allowance = Allowance(2, lambda: now)
    assert [allowance.take() for _ in range(4)] == [0, 0, None, None]
    now = 1.0
    assert [allowance.take(), allowance.take()] == [2, 0]


# What fails again and again


def failures_of(lines: Lines) -> list[dict[str, Any]]:
    """Return the lines of a test's outage with their level, without what every line has."""
    found = [line for line in map(json.loads, lines.texts) if line["logger"] == __name__]
    return [
        {name: fact for name, fact in line.items() if name not in {"timestamp", "logger"}} for line in found
    ]


@once
def test_an_outage_has_a_line_when_it_begins_and_an_info_line_when_it_is_over(lines: Lines) -> None:
    outage = Outage(__name__, "Appends failed", "Appends work again")
    outage.worked()
    outage.failed(DatabaseError("no room"), conversation="talk")
    outage.failed(DatabaseError("no room"), conversation="other")
    outage.worked()
    outage.worked()
    assert failures_of(lines) == [
        {"event": "Appends failed", "level": "warning", "conversation": "talk", "error": "no room"},
        {"event": "Appends work again", "level": "info", "seconds": 0.0, "failures": 2},
    ]


@once
@pytest.mark.parametrize(("error", "has_trace"), [(DatabaseError("gone"), False), (ValueError("gone"), True)])
def test_of_failures_that_come_together_the_first_is_told_and_traced_only_if_it_explains_nothing(
    lines: Lines, error: Exception, has_trace: bool
) -> None:
    together = ExceptionGroup("both", [ExceptionGroup("inner", [error]), ValueError("second")])
    Outage(__name__, "It failed").failed(together)
    (line,) = failures_of(lines)
    assert (line["error"], "exception" in line) == ("gone", has_trace)


@pytest.mark.needs_engine
async def test_an_agent_whose_start_fails_on_the_database_has_one_line_with_the_conversation(
    join: Join, alice: User, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CONVERSATION_MANAGER", "tests.support.data.faulty.UnstartableManager")
    client = await join("talk")
    await client.send({"type": "message", "id": 1, "text": "Hello"})
    failed = "The start of an agent failed and is tried again"
    (line,) = await until_here(lambda: lines.of(failed))
    assert line == {"conversation": "talk", "owner": alice.pk, "error": "no room"}
    assert "Traceback" not in "".join(lines.texts)


# Whose line it is


@once
async def test_lines_of_requests_that_are_handled_at_once_have_each_its_own_id(
    rest: httpx.AsyncClient, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_are_here = threading.Barrier(2, timeout=20)

    def chain(request: HttpRequest) -> HttpResponse:
        log_act("Came", path=request.path)
        both_are_here.wait()
        log_act("Went", path=request.path)
        return HttpResponse()

    monkeypatch.setattr(http, "_in_thread", lambda _, request: original(chain, request))
    await asyncio.gather(rest.get("/one"), rest.get("/two"))
    came, went = ({line["path"]: line["request"] for line in lines.of(act)} for act in ("Came", "Went"))
    assert came == went
    assert len(set(came.values())) == 2


original: Callable[..., Any] = http._in_thread


@once
async def test_what_a_request_has_begun_does_not_have_its_id(
    rest: httpx.AsyncClient, join: Join, lines: Lines
) -> None:
    await rest.post(NATIVE, json={"id": "talk"})
    await rest.post(f"{NATIVE}/talk/events", json={"type": "message", "text": "Hello"})
    await (await join("talk")).until("event", kind="turn")
    assert "request" in lines.of("Conversation created")[0]
    assert "request" not in lines.of("Agent started")[0]


def test_a_thread_has_no_id_left_after_a_request_that_failed() -> None:
    def fail(request: HttpRequest) -> HttpResponse:
        raise ZeroDivisionError(request.path)

    with pytest.raises(ZeroDivisionError), request_log.present():
        fail(HttpRequest())
    assert request_log.current_id() is None


# How lines look


def _use(server: Server) -> None:
    HTTP.post(f"{server.url}{NATIVE}", json={"id": "talk"})
    HTTP.get(f"{server.url}/nix")
    HTTP.post(f"{server.url}{NATIVE}", content=b"{", headers={"content-type": "application/json"})
    server.stop()


@once
def test_in_text_the_lines_follow_the_examples(server: Server) -> None:
    server.start(CONVSERVER_LOG_LEVEL="info")
    _use(server)
    told = server.log.read_text().partition('"Hello over the socket"}\n')[2].strip().splitlines()
    # The check of the store at the start ends at any time.
    written = [line for line in told if "Store verified" not in line]
    assert len(written) == 4
    assert "[info] Conversation created" in written[0]
    assert "\x1b" not in "".join(written)


@once
def test_in_json_every_line_is_an_object_also_those_of_python_itself(server: Server) -> None:
    server.start(CONVSERVER_LOG_FORMAT="json", CONVSERVER_LOG_LEVEL="info")
    _use(server)
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    levels = [line["level"] for line in lines if line["event"] != "Store verified"]
    assert levels == ["info", "info", "info", "warning", "info"]
    code = (
        "import django, threading, warnings; django.setup(); warnings.warn('look out'); "
        "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join(); [][1]"
    )
    environment = {**server.environment, "CONVSERVER_LOG_FORMAT": "json"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    found = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [line["level"] for line in found] == ["warning", "critical", "critical"]
    assert "ZeroDivisionError" in found[1]["exception"]
    assert "IndexError" in found[2]["exception"]


@once
def test_in_json_a_wrong_configuration_is_an_object_too(server: Server) -> None:
    ended = server.run(["convserver", "serve"], CONVSERVER_LOG_FORMAT="json", PORT="none")
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["level"], ended.returncode) == ("error", 2)
    assert line["event"].startswith("PORT")


@once
def test_a_server_has_a_line_when_it_starts_and_one_when_it_stops(server: Server) -> None:
    server.start(CONVSERVER_LOG_FORMAT="json")
    server.stop()
    written = [json.loads(line) for line in server.log.read_text().splitlines()]
    (started,) = (line for line in written if line["event"] == "Server started")
    (stopped,) = (line for line in written if line["event"] == "Server stopped")
    assert (started["mode"], started["manager"]) == ("local", "standalone")
    assert stopped["signal"] == "SIGTERM"


@once
def test_a_probe_that_is_told_of_an_outage_has_no_line_of_its_own() -> None:
    record = logging.LogRecord("django.request", logging.ERROR, "", 0, "", None, None)
    request = HttpRequest()
    request.method, request.path = "GET", "/health"
    record.__dict__.update(request=request, status_code=503)
    assert not request_log.ToldOnce().filter(record)


@once
def test_lines_below_the_chosen_level_are_not_written(server: Server) -> None:
    server.start(CONVSERVER_LOG_LEVEL="error")
    HTTP.post(f"{server.url}{NATIVE}", json={"id": "talk"})
    HTTP.delete(f"{server.url}{NATIVE}/nix")
    server.stop()
    assert server.log.read_text().partition('"Hello over the socket"}\n')[2].strip() == ""


@pytest.mark.parametrize("level", list(LogLevel))
def test_no_library_tells_frames_headers_or_addresses_at_any_level(level: LogLevel) -> None:
    wanted = log_format.settings(LogFormat.TEXT, level)
    levels = {name: described.get("level", 0) for name, described in wanted["loggers"].items()}
    assert wanted["root"]["level"] >= logging.INFO
    assert min(levels["httpx"], levels["uvicorn.error"]) >= logging.WARNING
