"""What a web client keeps on the app face: settings, profiles, secrets, and what its forms suggest."""

from __future__ import annotations

import json
import secrets
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.git_providers.base import ProviderType
from sessions_app.identity import conversation_keys
from sessions_app.models import ApiToken, DocumentKind, Grant, Scope
from sessions_app.settings import agent_setups, user_documents, user_settings
from sessions_app.settings.setup_keys import MASK
from sessions_app.settings.user_settings import SettingSecret
from tests.support.servers.git_server import GitServer
from tests.support.wires.app_face import APP, CONVERSATIONS, ID, SANDBOX, SANDBOXES, WORKSPACE, create

pytestmark = pytest.mark.one_engine

SETTINGS = f"{APP}/settings"
PROFILES = f"{SETTINGS}/profiles"
SECRETS = f"{APP}/secrets"
KEY = "sk-of-mine-12345678"
MODEL = {"model": "openai/gpt-x", "api_key": KEY, "base_url": "https://models.example.org/v1"}


async def stored(rest: httpx.AsyncClient) -> dict[str, Any]:
    answer = await rest.get(SETTINGS)
    assert answer.status_code == 200, answer.text
    assert KEY not in answer.text
    found: dict[str, Any] = answer.json()
    return found


async def change(rest: httpx.AsyncClient, **body: Any) -> None:
    answer = await rest.post(SETTINGS, json=body)
    assert answer.status_code == 200, answer.text


async def test_each_page_of_settings_changes_what_is_its_own(alice: User, rest: httpx.AsyncClient) -> None:
    assert (await rest.get(SETTINGS)).status_code == 404
    await change(rest, agent_settings_diff={"llm": MODEL})
    await change(rest, language="de", disabled_skills=["deploy"], git_user_name="Ana")
    await change(rest, conversation_settings_diff={"confirmation_mode": True, "max_iterations": 20})
    await change(rest, agent_settings_diff={"llm": {"model": "openai/gpt-y", "api_key": None}})
    found = await stored(rest)
    assert found["agent_settings"]["llm"] == {**MODEL, "model": "openai/gpt-y", "api_key": None}
    assert (found["language"], found["git_user_name"], found["disabled_skills"]) == ("de", "Ana", ["deploy"])
    conversation = found["conversation_settings"]
    assert (conversation["confirmation_mode"], conversation["max_iterations"]) == (True, 20)
    assert (found["llm_api_key_set"], found["search_api_key_set"]) == (True, False)
    kept = await astore.call(user_settings.setting_secrets, alice.pk)
    assert kept[SettingSecret.LLM_API_KEY] == KEY


async def test_a_token_without_admin_reads_the_names_of_agent_and_model_alone(
    accounts: None, alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    async def headers_of(scope: Scope) -> dict[str, str]:
        key = (await astore.call(ApiToken.issue, alice.pk, scope, Grant(scopes=[scope])))[1]
        return {"authorization": f"Bearer {key}"}

    agent = {
        "llm": {"model": "openai/gpt-x", "base_url": "https://models.example"},
        "mcp_config": {"mcpServers": {"tools": {"url": "https://tools.example"}}},
    }
    new = {"agent_settings_diff": agent, "language": "fr", "email": "a@b.example"}
    assert (await rest.get(SETTINGS, headers=await headers_of(Scope.READ))).status_code == 404
    assert (await rest.post(SETTINGS, json=new, headers=await headers_of(Scope.ADMIN))).status_code == 200
    for scope, status in ((Scope.WRITE, 403), (Scope.READ, 200), (Scope.ADMIN, 200)):
        with subtests.test(scope=scope):
            answer = await rest.get(SETTINGS, headers=await headers_of(scope))
            assert answer.status_code == status
            if status == 200:
                shown = answer.json()
                assert (shown["language"], shown["agent_settings"]["llm"]["model"]) == ("fr", "openai/gpt-x")
                for hidden in ("models.example", "tools.example", "a@b.example"):
                    assert (hidden in answer.text) is (scope is Scope.ADMIN), hidden


async def test_what_cannot_be_stored_changes_nothing(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await change(rest, language="en")
    refused: list[dict[str, Any]] = [
        {"language": "fr", "agent_settings": {"llm": MODEL}},
        {"language": "fr", "agent_settings_diff": {"llm": "gpt"}},
        {"language": "fr", "agent_settings_diff": {"condenser": {"max_size": 1}}},
        {"language": "fr", "registered_marketplaces": [{"name": "../x", "source": "github:a/b"}]},
        {"language": "fr\ud83d"},
        {"language": "fr", "disabled_skills": [{}]},
    ]
    for body in refused:
        with subtests.test(str(body)):
            answer = await rest.post(SETTINGS, content=json.dumps(body))  # with halves of characters, too
            assert answer.status_code in (400, 422)
            assert (await stored(rest))["language"] == "en"


async def test_a_profile_is_stored_shown_without_its_key_renamed_activated_and_deleted(
    alice: User, rest: httpx.AsyncClient
) -> None:
    assert (await rest.post(f"{PROFILES}/fast", json={"llm": MODEL})).status_code == 201
    without_key = {"llm": {**MODEL, "model": "openai/gpt-y", "api_key": None}}
    assert (await rest.post(f"{PROFILES}/fast", json=without_key)).status_code == 201
    assert (await rest.get(f"{PROFILES}/fast")).json() == {
        "name": "fast",
        "config": {**MODEL, "model": "openai/gpt-y", "api_key": None},
        "api_key_set": True,
    }
    await rest.post(f"{PROFILES}/bare", json={"llm": MODEL})
    await rest.post(f"{PROFILES}/bare", json={"llm": {**MODEL, "api_key": ""}})
    assert (await rest.get(f"{PROFILES}/bare")).json()["api_key_set"] is False
    await rest.delete(f"{PROFILES}/bare")
    assert (await rest.post(f"{PROFILES}/fast/rename", json={"new_name": "quick"})).status_code == 200
    activated = await rest.post(f"{PROFILES}/quick/activate")
    assert activated.json()["model"] == "openai/gpt-y"
    assert (await stored(rest))["agent_settings"]["llm"]["model"] == "openai/gpt-y"
    kept = await astore.call(user_settings.setting_secrets, alice.pk)
    assert kept[SettingSecret.LLM_API_KEY] == KEY
    assert (await rest.post(f"{PROFILES}/copy", json=None)).status_code == 201
    listed = (await rest.get(PROFILES)).json()
    assert [each["name"] for each in listed["profiles"]] == ["copy", "quick"]
    assert listed["active_profile"] == "quick"
    assert all(each["api_key_set"] for each in listed["profiles"])
    for _ in range(2):
        assert (await rest.delete(f"{PROFILES}/quick")).status_code == 200
    assert (await rest.get(PROFILES)).json()["active_profile"] is None


async def test_the_key_of_a_profile_stays_at_its_server(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    elsewhere = {**MODEL, "base_url": "https://elsewhere.example.org/v1", "api_key": None}
    for more in ({}, {"preserve_existing_api_key": True}):
        with subtests.test(str(more)):
            await rest.post(f"{PROFILES}/fast", json={"llm": MODEL})
            assert (await rest.post(f"{PROFILES}/fast", json={"llm": elsewhere, **more})).status_code == 201
            assert (await rest.get(f"{PROFILES}/fast")).json()["api_key_set"] is False


async def test_a_profile_without_secrets_has_none_and_one_of_the_settings_has_all(
    alice: User, rest: httpx.AsyncClient
) -> None:
    whole = {**MODEL, "extra_headers": {"X-Team": "sk-header-0003"}}
    await rest.post(f"{PROFILES}/open", json={"llm": whole, "include_secrets": False})
    await change(rest, agent_settings_diff={"llm": whole})
    await rest.post(f"{PROFILES}/copy", json={})
    await rest.post(f"{PROFILES}/bare", json={"include_secrets": False})
    profiles = await astore.call(user_documents.documents, alice.pk, DocumentKind.MODEL_PROFILE)
    without = {"model": MODEL["model"], "base_url": MODEL["base_url"]}
    assert profiles == {"open": without, "copy": whole, "bare": without}


async def test_a_conversation_goes_on_with_the_model_of_a_profile(
    alice: User, rest: httpx.AsyncClient
) -> None:
    talk: ConversationRef = await astore.call(create, alice)
    await rest.post(f"{PROFILES}/fast", json={"llm": MODEL})
    switched = await rest.post(f"{CONVERSATIONS}/{ID}/switch_profile", json={"profile_name": "fast"})
    assert (switched.status_code, switched.json()) == (200, {"success": True})
    setup = await astore.call(agent_setups.row_of, talk)
    assert setup.shown_agent is not None
    assert setup.shown_agent["llm"]["model"] == MODEL["model"]


async def test_a_profile_without_a_key_has_that_of_the_settings_in_a_conversation(
    alice: User, rest: httpx.AsyncClient
) -> None:
    talk: ConversationRef = await astore.call(create, alice)
    await change(rest, agent_settings_diff={"llm": MODEL})
    bare = {**MODEL, "model": "openai/gpt-y", "api_key": None}
    await rest.post(f"{PROFILES}/bare", json={"llm": bare, "include_secrets": False})
    await rest.post(f"{CONVERSATIONS}/{ID}/switch_profile", json={"profile_name": "bare"})
    setup = await astore.call(agent_setups.row_of, talk)
    assert setup.shown_agent is not None
    assert setup.shown_agent["llm"] == {**bare, "api_key": MASK}


async def test_secrets_are_listed_by_pages_renamed_and_deleted_and_no_value_comes_out(
    alice: User, rest: httpx.AsyncClient
) -> None:
    for name in ("B_KEY", "A_KEY", "OTHER"):
        body = {"name": name, "value": KEY, "description": f"of {name}"}
        assert (await rest.post(SECRETS, json=body)).status_code == 201
    first = (await rest.get(f"{SECRETS}/search?name__contains=key&limit=1")).json()
    assert first == {"items": [{"name": "A_KEY", "description": "of A_KEY"}], "next_page_id": "A_KEY"}
    rest_of = (await rest.get(f"{SECRETS}/search?name__contains=key&limit=1&page_id=A_KEY")).json()
    assert rest_of == {"items": [{"name": "B_KEY", "description": "of B_KEY"}], "next_page_id": None}
    assert (await rest.put(f"{SECRETS}/OTHER", json={"name": "A_KEY"})).status_code == 400
    assert (await rest.put(f"{SECRETS}/OTHER", json={"name": "NEW"})).status_code == 200
    assert (await rest.delete(f"{SECRETS}/A_KEY")).status_code == 200
    names = [each["name"] for each in (await rest.get(f"{SECRETS}/search")).json()["items"]]
    assert names == ["B_KEY", "NEW"]


async def test_what_a_secret_is_renamed_to_is_bounded(alice: User, rest: httpx.AsyncClient) -> None:
    await rest.post(SECRETS, json={"name": "MINE", "value": KEY})
    changes = {"name": "x" * 300}, {"name": " "}, {"name": "MINE", "description": "x" * 8001}
    answers = [await rest.put(f"{SECRETS}/MINE", json=each) for each in changes]
    assert [each.status_code for each in answers] == [400, 400, 422]


async def test_the_key_of_a_conversation_names_the_secrets_of_its_sandbox_alone(
    alice: User, rest: httpx.AsyncClient
) -> None:
    talk: ConversationRef = await astore.call(create, alice)
    await rest.post(SECRETS, json={"name": "TOKEN", "value": KEY})
    headers = {"x-session-api-key": await astore.call(conversation_keys.key_of, talk)}
    path = f"{SANDBOXES}/{SANDBOX}/settings/secrets"
    listed = await rest.get(path, headers=headers)
    assert listed.json() == {"secrets": [{"name": "TOKEN", "description": None}]}
    value = await rest.get(f"{path}/TOKEN", headers=headers)
    assert (value.status_code, KEY in value.text) == (403, False)
    assert (await rest.get(path.replace(SANDBOX, "x"), headers=headers)).status_code == 404


async def test_repositories_and_branches_come_in_pages_by_number(
    alice: User, rest: httpx.AsyncClient
) -> None:
    with GitServer(ProviderType.GITHUB, secrets.token_hex()) as server:
        tokens = {"github": {"token": server.token.token, "host": server.host}}
        assert (await rest.post(f"{SECRETS}/git-providers", json={"provider_tokens": tokens})).json() == {
            "message": "Git providers stored"
        }
        assert (await rest.get(f"{APP}/users/git-info")).json()["login"]
        repositories = f"{APP}/git/repositories/search?provider=github&limit=2"
        found: list[str] = []
        page_id = "1"
        while page_id is not None:
            page = (await rest.get(f"{repositories}&page_id={page_id}")).json()
            found += [each["full_name"] for each in page["items"]]
            page_id = page["next_page_id"]
        assert len(found) == len(set(found)) > 2
        branches = f"{APP}/git/branches/search?provider=github&repository=acme/site"
        assert (await rest.get(branches)).json()["items"][0]["name"] == "main"
        searched = (await rest.get(f"{branches}&query=feature")).json()["items"]
        assert {each["name"] for each in searched} == {"feature/login", "feature/search"}
        assert (await rest.get(f"{branches}&query=feature&page_id=2")).status_code == 400
    assert (await rest.delete(f"{SECRETS}/git-providers")).status_code == 200
    assert (await rest.get(repositories)).status_code == 403


async def test_branches_come_from_the_provider_that_is_named(alice: User, rest: httpx.AsyncClient) -> None:
    kinds = (ProviderType.GITHUB, ProviderType.GITLAB)
    with GitServer(kinds[0], secrets.token_hex()) as one, GitServer(kinds[1], secrets.token_hex()) as other:
        tokens = {
            kind.value: {"token": server.token.token, "host": server.host}
            for kind, server in zip(kinds, (one, other), strict=True)
        }
        await rest.post(f"{SECRETS}/git-providers", json={"provider_tokens": tokens})
        one.asked.clear()
        other.asked.clear()
        path = f"{APP}/git/branches/search?provider=gitlab&repository=acme/site"
        assert (await rest.get(path)).json()["items"][0]["name"] == "main"
        assert (len(one.asked), bool(other.asked)) == (0, True)


async def test_forms_suggest_models_by_pages_and_providers(alice: User, rest: httpx.AsyncClient) -> None:
    first = (await rest.get(f"{APP}/config/models/search?provider__eq=anthropic&limit=2")).json()
    assert len(first["items"]) == 2
    assert {each["provider"] for each in first["items"]} == {"anthropic"}
    path = f"{APP}/config/models/search?provider__eq=anthropic&page_id={first['next_page_id']}"
    following = (await rest.get(path)).json()["items"]
    assert not {each["name"] for each in first["items"]} & {each["name"] for each in following}
    providers = (await rest.get(f"{APP}/config/providers/search?query=ANTH")).json()
    assert providers["items"] == [{"name": "anthropic", "verified": True}]


async def test_a_workspace_is_empty_and_what_is_not_offered_is_refused_with_the_reason(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(create, alice)
    answers = {
        name: (await rest.get(f"{CONVERSATIONS}/{ID}/{path}")).json() for name, path in WORKSPACE.items()
    }
    assert answers == {
        "file": "",
        "changes": [],
        "diff": {"modified": None, "original": None},
        "hooks": {"hooks": []},
        "skills": {"skills": []},
    }
    for path in ("skills/marketplace-skills", "recaptcha/log"):
        refused = await rest.post(f"{APP}/{path}", json={})
        assert refused.status_code == 400
        assert refused.json()["detail"].startswith("This server ")


async def test_a_web_client_learns_what_to_show_before_it_logs_in(
    accounts: None, rest: httpx.AsyncClient
) -> None:
    shown = (await rest.get(f"{APP}/web-client/config")).json()
    assert (shown["app_mode"], shown["posthog_client_key"]) == ("oss", None)
    assert shown["feature_flags"]["hide_llm_settings"] is False
    assert shown["provider_default_hosts"]["github"] == "github.com"
