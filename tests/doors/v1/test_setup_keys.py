"""Keys in an agent's setup: shown to nobody, sealed, and masked in what its conversation stores."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.log import writes
from conversations.redaction.masking import MASK, Masks
from conversations.store import creation
from sessions_app.models import AgentSetup, SecretKind
from sessions_app.settings import agent_setups, owner_secrets, setup_keys
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.user_settings import SettingSecret, TooManySecrets
from tests.store.test_masking import keep, last
from tests.support.data.events import event

KEY = "sk-4f9a8b7c6d5e"


def server(**members: Any) -> dict[str, Any]:
    return {"mcp_config": {"mcpServers": {"tools": members}}}


SETUPS: dict[str, dict[str, Any]] = {
    "the model's key": {"llm": {"model": "m", "api_key": KEY}},
    "a key written together": {"llm": {"apikey": KEY}},
    "a key in camel case": {"llm": {"apiKey": KEY}},
    "a key with dashes": {"llm": {"x-api-key": KEY}},
    "the key of an extra body": {"llm": {"litellm_extra_body": {"key": KEY}}},
    "credentials of an extra body": {"llm": {"litellm_extra_body": {"credentials": KEY}}},
    "credentials that are an object": {"llm": {"vertex_credentials": {"id": 1, "blob": KEY}}},
    "a condenser's key": {"condenser": {"llm": {"api_key": KEY}}},
    "a header": server(url="https://a.example", headers={"Authorization": f"Bearer {KEY}"}),
    "an environment": server(command="serve", env={"PASS": KEY}),
    "what a URL asks with": server(url=f"https://a.example/mcp?token={KEY}&x=1"),
    "what a URL asks with, encoded": server(
        url=f"https://a.example/mcp?x=1&apiKey={KEY.replace('-', '%2D')}"
    ),
    "a URL's password": server(url=f"https://me:{KEY}@a.example/mcp"),
    "a URL's user": server(url=f"https://{KEY}@a.example/mcp"),
    "an option": server(command="npx", args=["serve", f"--api-key={KEY}"]),
    "an option and its value": server(command="npx", args=["serve", "--token", KEY, "--fast"]),
    "a variable in arguments": server(command="docker", args=["run", "-e", f"API_KEY={KEY}"]),
    "a header in arguments": server(command="npx", args=["--header", f"Authorization: Bearer {KEY}"]),
    "a header in an option": server(command="npx", args=[f"--header=X-Api-Key: {KEY}"]),
    "a URL in arguments": server(
        command="npx", args=["mcp-remote", f"https://a.example/?access_token={KEY}"]
    ),
    "one line": server(command=f"serve --password {KEY} --fast"),
}


def test_a_key_of_the_setup_is_neither_shown_nor_stored_in_clear_nor_left_in_events(
    alice: User, subtests: pytest.Subtests
) -> None:
    for which, setup in SETUPS.items():
        with subtests.test(which):
            talk = agent_setups.create(alice, NewSetup(agent=setup))
            row = AgentSetup.objects.get(conversation_id=talk.pk)
            assert KEY not in json.dumps(row.shown_agent)
            assert KEY.replace("-", "%2D") not in json.dumps(row.shown_agent)
            stored = AgentSetup.objects.values_list("sealed_agent", "sealed_keys").get(pk=row.pk)
            assert not any(KEY in each.token for each in stored)
            assert json.loads(row.sealed_agent.open()) == setup
            writes.append(talk, [event(f"it is {KEY}.")])
            assert last(talk)["args"]["content"] == f"it is {MASK}."


NO_KEYS: list[dict[str, Any]] = [
    {
        "llm": {
            "model": "m",
            "base_url": "https://a.example/v1?x=1#y",
            "max_output_tokens": 9,
            "usage_id": "agent",
        }
    },
    {"tools": [{"name": "terminal", "params": {"keyboard": "abcdefgh"}}]},
    server(url="https://a.example:8000/mcp?page=2", transport="http", auth="oauth"),
    server(command="npx", args=["-y", "serve", "--port", "8000", "--verbose", "a=b", "x: y"]),
    {"system_prompt": "Give --token abcdefgh to nobody; key: value"},
]


def test_what_is_no_key_is_shown_as_it_was_sent(subtests: pytest.Subtests) -> None:
    for plain in NO_KEYS:
        with subtests.test(plain=plain):
            assert setup_keys.masked(plain) == plain
            assert setup_keys.keys_of(plain) == []


@pytest.mark.parametrize("placeholder", ["EMPTY", "*" * 10])
def test_placeholders_for_a_key_are_left_in_events(placeholder: str) -> None:
    assert setup_keys.keys_of({"llm": {"api_key": placeholder}}) == []


def test_headers_that_are_no_keys_are_left_in_events() -> None:
    headers = {"Content-Type": "application/json", "X-Key": KEY}
    assert setup_keys.keys_of(server(headers=headers)) == [KEY]


def test_the_rest_of_a_url_and_of_arguments_stays_readable() -> None:
    shown = setup_keys.masked(
        server(url=f"https://me:{KEY}@a.example/mcp?token={KEY}&x=1", args=[f"--api-key={KEY}", "--fast"])
    )
    assert shown == server(
        url=f"https://{setup_keys.MASK}@a.example/mcp?token={setup_keys.MASK}&x=1",
        args=[f"--api-key={setup_keys.MASK}", "--fast"],
    )


def test_keys_stay_masked_when_secrets_are_set_and_in_a_fork(alice: User) -> None:
    talk = agent_setups.create(alice, NewSetup(agent=SETUPS["the model's key"]))
    agent_setups.add_secrets(talk, {})
    for each in (talk, agent_setups.fork(alice, talk)):
        writes.append(each, [event(f"it is {KEY}.")])
        assert last(each)["args"]["content"] == f"it is {MASK}."


@pytest.mark.parametrize("limit", [{"secrets_max": 2}, {"secrets_max_kb": 1}])
def test_secrets_and_keys_of_a_conversation_are_bounded_together(
    alice: User, limit: dict[str, int], configured: Callable[..., None]
) -> None:
    configured(**limit)
    secret = {"kind": "StaticSecret", "value": "x" * 450}
    agent = {"llm": {"api_key": KEY + "y" * 450}}
    talk = agent_setups.create(alice, NewSetup(agent=agent, secrets={"A": secret}))
    with pytest.raises(TooManySecrets, match="the keys of its agent"):
        agent_setups.add_secrets(talk, {"B": secret})
    with pytest.raises(TooManySecrets, match="the keys of its agent"):
        agent_setups.create(alice, NewSetup(agent=agent, secrets={"A": secret, "B": secret}))
    agent_setups.add_secrets(talk, {"A": secret})


def test_values_of_many_owners_are_not_all_cached(
    alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_secrets, "_opened", owner_secrets._Opened(max_chars=100))
    for user in (alice, bob):
        keep(user, f"secret of {user.username} " + "x" * 60)
        writes.append(creation.create(user), [event("x")])
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) is Masks]
    assert not [each for each in kept if each.hide(f"secret of {alice.username} " + "x" * 60) == MASK]
    assert [each for each in kept if each.hide("secret of bob " + "x" * 60) == MASK]


def test_of_many_owners_those_whose_values_were_used_last_stay_cached(
    alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    carol = User.objects.create_user("carol")
    monkeypatch.setattr(owner_secrets, "_opened", owner_secrets._Opened(max_chars=200))
    logs = {}
    for user in (alice, bob):
        keep(user, f"secret of {user.username} " + "x" * 60)
        logs[user.username] = creation.create(user)
        writes.append(logs[user.username], [event("x")])
    writes.append(logs[alice.username], [event("again")])
    keep(carol, "secret of carol " + "x" * 60)
    writes.append(creation.create(carol), [event("x")])
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) is Masks]
    cached = [
        user.username
        for user in (alice, bob, carol)
        if any(each.hide(f"secret of {user.username} " + "x" * 60) == MASK for each in kept)
    ]
    assert cached == [alice.username, "carol"]


def test_a_key_in_the_path_of_a_tool_servers_address_is_masked_in_events_and_no_other_part_of_it(
    conversation: ConversationRef, alice: User
) -> None:
    key = f"ak~{KEY}"
    config = {
        "sse_servers": [{"url": f"https://a.example/api/2025-03-26/tools-of-everybody/{quote(key)}/sse"}]
    }
    keep(alice, json.dumps(config), kind=SecretKind.SETTING, name=SettingSecret.MCP_CONFIG)
    writes.append(conversation, [event(f"/api/2025-03-26/tools-of-everybody/{key}/sse")])
    assert last(conversation)["args"]["content"] == f"/api/2025-03-26/tools-of-everybody/{MASK}/sse"


@pytest.mark.parametrize(
    "config",
    [
        {"shttp_servers": [{"url": f"https://a.example/?token={KEY}"}]},
        {"stdio_servers": [{"name": "t", "command": "npx", "args": [f"--api-key={KEY}"]}]},
    ],
)
def test_keys_in_addresses_and_arguments_of_a_users_tool_servers_are_masked_in_events(
    conversation: ConversationRef, alice: User, config: dict[str, Any]
) -> None:
    keep(alice, json.dumps(config), kind=SecretKind.SETTING, name=SettingSecret.MCP_CONFIG)
    writes.append(conversation, [event(f"it is {KEY}.")])
    assert last(conversation)["args"]["content"] == f"it is {MASK}."
