"""Settings and secrets at the V0 door: each user's own, never told (spec V0 §1.9, §1.10)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import astore
from sessions_app.models import ApiToken, Secret, SecretKind
from sessions_app.settings import user_settings
from sessions_app.settings.placeholder_keys import NOT_MASKED
from sessions_app.settings.user_settings import SettingSecret
from tests.support.wires.v0 import Problem

pytestmark = pytest.mark.one_engine

SETTINGS = "/api/settings"
SECRETS = "/api/secrets"
UNSET: dict[str, Any] = {
    "language": None,
    "agent": None,
    "max_iterations": None,
    "security_analyzer": None,
    "confirmation_mode": None,
    "llm_model": None,
    "llm_api_key": None,
    "llm_base_url": None,
    "remote_runtime_resource_factor": None,
    "secrets_store": {"provider_tokens": {}},
    "enable_default_condenser": True,
    "enable_sound_notifications": False,
    "enable_proactive_conversation_starters": True,
    "enable_solvability_analysis": True,
    "user_consents_to_analytics": None,
    "sandbox_base_container_image": None,
    "sandbox_runtime_container_image": None,
    "mcp_config": None,
    "search_api_key": None,
    "sandbox_api_key": None,
    "max_budget_per_task": None,
    "condenser_max_size": None,
    "email": None,
    "email_verified": None,
    "git_user_name": None,
    "git_user_email": None,
    "v1_enabled": None,
    "provider_tokens_set": {},
    "llm_api_key_set": False,
    "search_api_key_set": False,
}
"""The answer to who has set nothing but exists, in the wire's order."""

TOOLS = {
    "sse_servers": [{"url": "https://tools.example.org/sse", "api_key": "tool-key"}],
    "stdio_servers": [{"name": "files", "command": "serve", "args": ["--all"], "env": {"TOKEN": "t"}}],
    "shttp_servers": [{"url": "https://tools.example.org/mcp", "api_key": None, "timeout": 60}],
}
ALL: dict[str, Any] = {
    "language": "en",
    "agent": "CodeActAgent",
    "max_iterations": 50,
    "security_analyzer": "llm",
    "confirmation_mode": True,
    "llm_model": "openai/gpt-5",
    "llm_base_url": "https://models.example.org",
    "remote_runtime_resource_factor": 2,
    "enable_default_condenser": False,
    "enable_sound_notifications": True,
    "enable_proactive_conversation_starters": False,
    "enable_solvability_analysis": False,
    "user_consents_to_analytics": True,
    "sandbox_base_container_image": "base:1",
    "sandbox_runtime_container_image": "runtime:1",
    "mcp_config": TOOLS,
    "max_budget_per_task": 2.5,
    "condenser_max_size": 120,
    "email": "alice@example.org",
    "git_user_name": "Alice",
    "git_user_email": "alice@git.example.org",
    "v1_enabled": True,
}
KEYS = {"llm_api_key": "model-key", "search_api_key": "search-key", "sandbox_api_key": "sandbox-key"}
NULL_KEEPS = ["llm_model", "llm_base_url", "user_consents_to_analytics"]


async def stored(rest: httpx.AsyncClient, body: Any, **options: Any) -> dict[str, Any]:
    """Store settings and return what they are then."""
    response = await rest.post(SETTINGS, json=body, **options)
    assert (response.status_code, response.json()) == (200, {"message": "Settings stored"})
    return await shown(rest, **options)


async def shown(rest: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    response = await rest.get(SETTINGS, **options)
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def short(value: object) -> str:
    return str(value)[:60]


def secret(user: User, name: SettingSecret) -> str | None:
    return user_settings.secret_value(user.pk, SecretKind.SETTING, name=name)


def bearer(user: User) -> dict[str, str]:
    return {"authorization": f"Bearer {ApiToken.issue(user.pk, 'laptop')[1]}"}


def fail(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the database be gone for these questions."""

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("The database is gone: sk-very-secret.")

    for name in names:
        monkeypatch.setattr(user_settings, name, gone)


# Settings


async def test_there_are_no_settings_before_the_first_time(rest: httpx.AsyncClient) -> None:
    response = await rest.get(SETTINGS)
    assert (response.status_code, response.json()) == (404, {"error": "Settings not found"})


async def test_what_is_not_set_has_the_wires_defaults_in_the_wires_order(rest: httpx.AsyncClient) -> None:
    found = await stored(rest, {})
    assert (found, list(found)) == (UNSET, list(UNSET))


async def test_everything_that_is_set_is_shown_but_no_key(rest: httpx.AsyncClient) -> None:
    found = await stored(rest, {**ALL, **KEYS})
    assert found == {**UNSET, **ALL, "llm_api_key_set": True, "search_api_key_set": True}
    assert not [key for key in KEYS.values() if key in json.dumps(found)]


async def test_a_short_key_of_a_model_is_stored_and_said_not_to_be_masked(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(SETTINGS, json={"llm_model": "openai/gpt-5", "llm_api_key": "sk-1"})
    assert answer.json() == {"message": f"Settings stored. {NOT_MASKED}"}
    assert (await stored(rest, {"llm_api_key": "ollama"}))["llm_api_key_set"] is True


async def test_what_a_first_run_posts_is_stored(rest: httpx.AsyncClient) -> None:
    body = {
        "llm_model": "openhands/claude-sonnet-4-20250514",
        "agent": "CodeActAgent",
        "language": "en",
        "confirmation_mode": False,
        "llm_api_key": "sk-of-alice",
        "remote_runtime_resource_factor": 1,
        "enable_default_condenser": True,
        "condenser_max_size": 120,
        "enable_sound_notifications": False,
        "provider_tokens_set": {},
        "mcp_config": {"sse_servers": [], "stdio_servers": [], "shttp_servers": []},
        "enable_proactive_conversation_starters": False,
        "enable_solvability_analysis": False,
        "search_api_key": "",
        "max_budget_per_task": None,
        "git_user_name": "openhands",
        "git_user_email": "openhands@all-hands.dev",
    }
    told = {**body, "llm_api_key": None, "search_api_key": None, "llm_api_key_set": True}
    assert await stored(rest, body) == {**UNSET, **told}


@pytest.mark.parametrize("changed", [{"enable_default_condenser": True}, {"language": "de"}])
async def test_what_is_absent_stays(changed: dict[str, Any], rest: httpx.AsyncClient) -> None:
    before = await stored(rest, {**ALL, **KEYS})
    assert await stored(rest, changed) == {**before, **changed}


async def test_a_null_clears_but_for_what_the_wire_keeps(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name in ALL:
        with subtests.test(name):
            before = await stored(rest, ALL)
            expected = before if name in NULL_KEEPS else {**before, name: UNSET[name]}
            assert await stored(rest, {name: None}) == expected


@pytest.mark.parametrize("name", [SettingSecret(each) for each in KEYS])
async def test_a_key_stays_while_it_is_absent_or_null_and_goes_when_it_is_blank(
    name: SettingSecret, alice: User, rest: httpx.AsyncClient
) -> None:
    await stored(rest, KEYS)
    await stored(rest, {})
    assert await astore.call(secret, alice, name) == KEYS[name]
    await stored(rest, {name: None})
    kept = None if name is SettingSecret.SANDBOX_API_KEY else KEYS[name]
    assert await astore.call(secret, alice, name) == kept
    await stored(rest, {name: "  "})
    assert await astore.call(secret, alice, name) is None


async def test_a_key_is_sealed_and_stored_as_it_was_given(alice: User, rest: httpx.AsyncClient) -> None:
    await stored(rest, {**KEYS, "mcp_config": TOOLS})

    def columns() -> str:
        with connection.cursor() as cursor:
            cursor.execute(f"select * from {Secret._meta.db_table}")
            return repr(cursor.fetchall())

    text = await astore.call(columns)
    assert not [key for key in (*KEYS.values(), "tool-key") if key in text]
    assert await astore.call(secret, alice, SettingSecret.SANDBOX_API_KEY) == "sandbox-key"


async def test_a_key_that_nobody_can_open_any_more_counts_as_none(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(rest, {**KEYS, "mcp_config": TOOLS})
    monkeypatch.setattr(settings, "SECRET_KEY", "another " * 10)
    assert await shown(rest) == UNSET


async def test_tool_servers_are_taken_in_every_form_and_shown_in_one(rest: httpx.AsyncClient) -> None:
    given = {
        "sse_servers": ["https://a.example.org"],
        "stdio_servers": [{"name": "x", "command": "serve", "args": "--all 'a b'", "env": "K=V,L=W"}],
        "shttp_servers": ["https://b.example.org"],
    }
    assert (await stored(rest, {"mcp_config": given}))["mcp_config"] == {
        "sse_servers": [{"url": "https://a.example.org", "api_key": None}],
        "stdio_servers": [
            {"name": "x", "command": "serve", "args": ["--all", "a b"], "env": {"K": "V", "L": "W"}}
        ],
        "shttp_servers": [{"url": "https://b.example.org", "api_key": None, "timeout": 60}],
    }


async def test_stored_tool_servers_that_are_none_are_not_shown(alice: User, rest: httpx.AsyncClient) -> None:
    await stored(rest, {})
    await astore.call(user_settings.set_secret, alice.pk, SettingSecret.MCP_CONFIG, '{"servers": 1}')
    assert await shown(rest) == UNSET


REFUSED: list[tuple[Any, Problem]] = [
    ({"condenser_max_size": 19}, Problem("value_error", ["body", "condenser_max_size"])),
    ({"condenser_max_size": 2**31}, Problem("less_than", ["body", "condenser_max_size"])),
    ({"max_iterations": "many"}, Problem("int_parsing", ["body", "max_iterations"])),
    ({"max_iterations": 2**31}, Problem("less_than", ["body", "max_iterations"])),
    ({"confirmation_mode": "perhaps"}, Problem("bool_parsing", ["body", "confirmation_mode"])),
    ({"max_budget_per_task": "inf"}, Problem("finite_number", ["body", "max_budget_per_task"])),
    ({"llm_model": 5}, Problem("string_type", ["body", "llm_model"])),
    ({"llm_model": "a\0b"}, Problem("value_error", ["body", "llm_model"])),
    ({"llm_api_key": "\ud800"}, Problem("string_unicode", ["body", "llm_api_key"])),
    ({"language": "x" * 8001}, Problem("string_too_long", ["body", "language"])),
    ({"mcp_config": {"servers": []}}, Problem("extra_forbidden", ["body", "mcp_config", "servers"])),
    (
        {"mcp_config": {"sse_servers": ["ftp://a.b"]}},
        Problem("value_error", ["body", "mcp_config", "sse_servers", 0, "url"]),
    ),
    ([], Problem("model_attributes_type", ["body"])),
]


async def test_a_bad_value_is_refused_and_nothing_is_stored(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body, problem in REFUSED:
        with subtests.test(body=body, problem=problem):
            before = await stored(rest, ALL)
            given = {"language": "de", "llm_api_key": "new", **body} if isinstance(body, dict) else body
            response = await rest.post(SETTINGS, content=json.dumps(given))
            assert (response.status_code, response.json()) == (422, problem)
            assert await shown(rest) == before


async def test_no_body_is_refused(rest: httpx.AsyncClient) -> None:
    response = await rest.post(SETTINGS)
    assert (response.status_code, response.json()) == (422, Problem("missing", ["body"]))


async def test_unknown_members_and_what_only_the_server_says_are_ignored(rest: httpx.AsyncClient) -> None:
    body = {
        "provider_tokens_set": {"github": "x"},
        "llm_api_key_set": True,
        "email_verified": False,
        "secrets_store": {"provider_tokens": {"github": {"token": "t"}}},
        "colour": "green",
    }
    assert await stored(rest, body) == UNSET


async def test_a_failure_while_loading_settings_is_a_500_and_tells_nothing(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "settings_of")
    response = await rest.get(SETTINGS)
    assert (response.status_code, response.json()) == (
        500,
        {"error": "Something went wrong loading settings"},
    )


async def test_a_failure_while_storing_settings_stores_nothing(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await stored(rest, ALL)
    with monkeypatch.context() as broken:
        fail(broken, "store_secret")
        response = await rest.post(SETTINGS, json={"language": "de", "llm_api_key": "new"})
    assert (response.status_code, response.json()) == (
        500,
        {"error": "Something went wrong storing settings"},
    )
    assert await shown(rest) == before


async def test_settings_are_those_of_whoever_asks(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    alices, bobs = await astore.call(bearer, alice), await astore.call(bearer, bob)
    before = await stored(rest, {**ALL, **KEYS}, headers=alices)
    assert (await rest.get(SETTINGS, headers=bobs)).status_code == 404
    assert await stored(rest, {"language": "de"}, headers=bobs) == {**UNSET, "language": "de"}
    assert await shown(rest, headers=alices) == before


async def test_storing_settings_changes_nothing_of_the_process(rest: httpx.AsyncClient) -> None:
    before = dict(os.environ), settings.CONFIGURATION
    await stored(rest, {**ALL, **KEYS})
    assert (dict(os.environ), settings.CONFIGURATION) == before


def test_a_change_writes_no_column_but_its_own(alice: User) -> None:
    user_settings.change_settings(alice.pk, {"git_user_name": "Alice"}, secrets={})
    with CaptureQueriesContext(connection) as asked:
        user_settings.change_settings(alice.pk, {"language": "de"}, secrets={})
    (update,) = [each["sql"] for each in asked.captured_queries if each["sql"].startswith("UPDATE")]
    written = set(re.findall(r'"(\w+)" = ', update.partition("WHERE")[0]))
    assert written == {"language", "created_at", "updated_at"}  # the times come with every change


async def test_settings_are_not_reset_any_more(rest: httpx.AsyncClient) -> None:
    before = await stored(rest, ALL)
    response = await rest.post("/api/reset-settings")
    gone = {"error": "Reset settings functionality has been removed."}
    assert (response.status_code, response.json()) == (410, gone)
    assert await shown(rest) == before


# Secrets


async def secrets(rest: httpx.AsyncClient, **options: Any) -> dict[str, str]:
    """Return the descriptions by name."""
    response = await rest.get(SECRETS, **options)
    assert response.status_code == 200
    return {each["name"]: each["description"] for each in response.json()["custom_secrets"]}


async def create(rest: httpx.AsyncClient, name: str, description: str = "why", **options: Any) -> None:
    body = {"name": name, "value": f"value of {name}", "description": description}
    response = await rest.post(SECRETS, json=body, **options)
    assert (response.status_code, response.json()) == (201, {"message": "Secret created successfully"})


def value(user: User, name: str) -> str | None:
    return user_settings.secret_value(user.pk, SecretKind.CUSTOM, name=name)


async def test_a_user_without_secrets_has_an_empty_list(rest: httpx.AsyncClient) -> None:
    assert (await rest.get(SECRETS)).json() == {"custom_secrets": []}


async def test_secrets_are_listed_by_name_and_their_values_never(rest: httpx.AsyncClient) -> None:
    await create(rest, "b", "second")
    await create(rest, "a", "first")
    response = await rest.get(SECRETS)
    assert response.json() == {
        "custom_secrets": [{"name": "a", "description": "first"}, {"name": "b", "description": "second"}]
    }


async def test_a_secret_needs_no_description(alice: User, rest: httpx.AsyncClient) -> None:
    assert (await rest.post(SECRETS, json={"name": "a", "value": "v"})).status_code == 201
    assert (await secrets(rest), await astore.call(value, alice, "a")) == ({"a": ""}, "v")


async def test_a_name_that_is_taken_is_refused_and_the_secret_stays(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await create(rest, "a")
    response = await rest.post(SECRETS, json={"name": "a", "value": "other", "description": "other"})
    assert (response.status_code, response.json()) == (400, {"message": "Secret a already exists"})
    assert (await secrets(rest), await astore.call(value, alice, "a")) == ({"a": "why"}, "value of a")


NO_SECRETS: list[tuple[Any, Problem]] = [
    ({"value": "v"}, Problem("missing", ["body", "name"])),
    ({"name": "a"}, Problem("missing", ["body", "value"])),
    ({"name": " ", "value": "v"}, Problem("value_error", ["body", "name"])),
    ({"name": "a" * 256, "value": "v"}, Problem("string_too_long", ["body", "name"])),
    ({"name": "a\0", "value": "v"}, Problem("value_error", ["body", "name"])),
    ({"name": "a", "value": " "}, Problem("value_error", ["body", "value"])),
    ({"name": "a", "value": 5}, Problem("string_type", ["body", "value"])),
]


async def test_what_cannot_be_a_secret_is_refused(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for body, problem in NO_SECRETS:
        with subtests.test(body=body, problem=problem):
            response = await rest.post(SECRETS, json=body)
            assert (response.status_code, response.json()) == (422, problem)
            assert await secrets(rest) == {}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "b"}, {"b": "why"}),
        ({"name": "b", "description": "new"}, {"b": "new"}),
        ({"name": "a", "description": "new"}, {"a": "new"}),
        ({"name": "a", "description": ""}, {"a": ""}),
        ({"name": "a", "description": None}, {"a": ""}),
        ({"name": "a", "value": "other"}, {"a": "why"}),
    ],
    ids=short,
)
async def test_a_secret_is_renamed_and_described_anew_and_keeps_what_is_not_said(
    body: Any, expected: dict[str, str], alice: User, rest: httpx.AsyncClient
) -> None:
    await create(rest, "a")
    response = await rest.put(f"{SECRETS}/a", json=body)
    assert (response.status_code, response.json()) == (200, {"message": "Secret updated successfully"})
    assert await secrets(rest) == expected
    assert await astore.call(value, alice, body["name"]) == "value of a"


async def test_a_secret_cannot_take_the_name_of_another(alice: User, rest: httpx.AsyncClient) -> None:
    await create(rest, "a")
    await create(rest, "b")
    response = await rest.put(f"{SECRETS}/a", json={"name": "b", "description": "mine"})
    assert (response.status_code, response.json()) == (400, {"message": "Secret b already exists"})
    assert await secrets(rest) == {"a": "why", "b": "why"}
    assert await astore.call(value, alice, "b") == "value of b"


async def test_a_secret_is_deleted_once(rest: httpx.AsyncClient) -> None:
    await create(rest, "a")
    response = await rest.delete(f"{SECRETS}/a")
    assert (response.status_code, response.json()) == (200, {"message": "Secret deleted successfully"})
    assert await secrets(rest) == {}
    again = await rest.delete(f"{SECRETS}/a")
    assert (again.status_code, again.json()) == (404, {"error": "Secret with ID a not found"})


@pytest.mark.parametrize("name", ["none", "a%00b", "x" * 300])
async def test_a_secret_that_is_not_there_is_not_found_whether_there_are_others_or_none(
    name: str, rest: httpx.AsyncClient
) -> None:
    for _ in range(2):
        for response in (
            await rest.put(f"{SECRETS}/{name}", json={"name": "b"}),
            await rest.delete(f"{SECRETS}/{name}"),
        ):
            assert (response.status_code, list(response.json())) == (404, ["error"])
        if not await secrets(rest):
            await create(rest, "a")


@pytest.mark.parametrize("name", ["a/b", "a b", "ключ", "a\nb", "100%"])
async def test_any_name_can_be_addressed(name: str, rest: httpx.AsyncClient) -> None:
    await create(rest, name)
    address = f"{SECRETS}/{quote(name, safe='')}"
    assert (await rest.put(address, json={"name": name, "description": "new"})).status_code == 200
    assert await secrets(rest) == {name: "new"}
    assert (await rest.delete(address)).status_code == 200


async def test_secrets_are_those_of_whoever_asks(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    alices, bobs = await astore.call(bearer, alice), await astore.call(bearer, bob)
    await create(rest, "a", headers=alices)
    assert await secrets(rest, headers=bobs) == {}
    assert (await rest.put(f"{SECRETS}/a", json={"name": "b"}, headers=bobs)).status_code == 404
    assert (await rest.delete(f"{SECRETS}/a", headers=bobs)).status_code == 404
    await create(rest, "a", "bob's", headers=bobs)
    assert await secrets(rest, headers=alices) == {"a": "why"}


Ask = Callable[[httpx.AsyncClient], Any]
FAILURES: list[tuple[str, Ask, str]] = [
    ("custom_secrets", lambda rest: rest.get(SECRETS), "Failed to get secret names"),
    (
        "create_custom_secret",
        lambda rest: rest.post(SECRETS, json={"name": "a", "value": "v"}),
        "Something went wrong creating secret",
    ),
    (
        "rename_custom_secret",
        lambda rest: rest.put(f"{SECRETS}/a", json={"name": "a"}),
        "Something went wrong updating secret",
    ),
    (
        "remove_custom_secret",
        lambda rest: rest.delete(f"{SECRETS}/a"),
        "Something went wrong deleting secret",
    ),
    (
        "remove_provider_tokens",
        lambda rest: rest.post("/api/unset-provider-tokens"),
        "Something went wrong unsetting tokens",
    ),
    (
        "provider_tokens",
        lambda rest: rest.post("/api/add-git-providers", json={}),
        "Something went wrong storing git providers",
    ),
]


@pytest.mark.parametrize(("broken", "ask", "words"), FAILURES)
async def test_a_failure_is_a_500_in_the_wires_words(
    broken: str, ask: Ask, words: str, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, broken)
    response = await ask(rest)
    assert (response.status_code, response.json()) == (500, {"error": words})


async def test_a_user_keeps_a_bounded_number_of_secrets(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_settings, "SECRETS_MAX", 1)
    first = await rest.post(SECRETS, json={"name": "A", "value": "x"})
    second = await rest.post(SECRETS, json={"name": "B", "value": "y"})
    assert (first.status_code, second.status_code) == (201, 400)
    assert second.json() == {"message": "You can have at most 1 secrets. Delete one first."}
    assert [each["name"] for each in (await rest.get(SECRETS)).json()["custom_secrets"]] == ["A"]


async def test_all_secrets_of_a_user_have_a_bounded_size(rest: httpx.AsyncClient) -> None:
    answers = [
        await rest.post(SECRETS, json={"name": str(number), "value": "x" * 16_384}) for number in range(25)
    ]
    assert {each.status_code for each in answers} == {201, 400}
    assert "may take 400,000 characters" in answers[-1].json()["message"]
    assert len((await rest.get(SECRETS)).json()["custom_secrets"]) == 18


# A stored key and a changed address


KEPT = {"llm_base_url": "https://models.example.org/v1", "llm_api_key": "model-key"}
WANTED = "The base URL names another server. Enter the API key for it, or remove the key."


@pytest.mark.parametrize("url", ["https://evil.example.org/v1", "http://models.example.org/v1", ""])
async def test_a_stored_key_is_not_sent_to_another_server(rest: httpx.AsyncClient, url: str) -> None:
    await stored(rest, KEPT)
    answer = await rest.post(SETTINGS, json={"llm_base_url": url, "llm_model": "other"})
    assert (answer.status_code, answer.json()) == (400, {"detail": WANTED})
    now = await shown(rest)
    assert (now["llm_base_url"], now["llm_model"]) == (KEPT["llm_base_url"], None)


@pytest.mark.parametrize(
    "body",
    [
        {"llm_base_url": "https://other.example.org", "llm_api_key": "its own key"},
        {"llm_base_url": "https://other.example.org", "llm_api_key": ""},
        {"llm_base_url": "https://MODELS.example.org/v2", "llm_api_key": None},
        {"llm_base_url": None, "llm_api_key": None},
    ],
    ids=["another key", "no key", "the same server", "what a form sends"],
)
async def test_a_base_url_is_stored_with_a_key_of_its_own_or_on_the_same_server(
    rest: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    await stored(rest, KEPT)
    now = await stored(rest, body)
    assert now["llm_base_url"] == (body["llm_base_url"] or KEPT["llm_base_url"])


async def test_a_base_url_is_stored_freely_where_no_key_is(rest: httpx.AsyncClient) -> None:
    await stored(rest, {"llm_base_url": "https://models.example.org/v1"})
    assert (await stored(rest, {"llm_base_url": ""}))["llm_base_url"] == ""
