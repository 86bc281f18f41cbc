"""Git providers at the V0 door: who may store a token, and what it opens (spec V0 §1.10, §1.11)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from sessions_app import astore
from sessions_app.git_providers import base
from sessions_app.git_providers.base import ProviderToken, ProviderType
from sessions_app.git_providers.client import NO_TOKEN
from sessions_app.models import ApiToken, SecretKind
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.support.servers.git_server import DATE, GitServer
from tests.support.wires.v0 import Problem

pytestmark = pytest.mark.one_engine

ADD = "/api/add-git-providers"
UNSET = "/api/unset-provider-tokens"
SETTINGS = "/api/settings"
USER = "/api/user"
STORED = {"message": "Git providers stored"}
Servers = Callable[[ProviderType], GitServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Start a provider that nobody has stored a token of."""
    with ExitStack() as running:
        yield lambda provider: running.enter_context(GitServer(provider, secrets.token_hex()))


@pytest.fixture
def github(servers: Servers) -> GitServer:
    return servers(ProviderType.GITHUB)


@pytest.fixture
def gitlab(servers: Servers) -> GitServer:
    return servers(ProviderType.GITLAB)


@pytest.fixture
def known(alice: User, github: GitServer) -> GitServer:
    """A GitHub of which alice has stored a token."""
    store_token(alice, github)
    return github


def store_token(user: User, server: GitServer) -> None:
    user_settings.store_secret(
        user.pk,
        SecretKind.PROVIDER_TOKEN,
        name=server.provider,
        value=server.token.token,
        host=server.host,
    )


def token_of(server: GitServer, **values: Any) -> dict[str, Any]:
    return {server.provider.value: {"token": server.token.token, "host": server.host, **values}}


def tokens(user: User) -> dict[str, tuple[str, str | None]]:
    """Return the stored tokens and hosts."""
    stored = user_settings.provider_tokens(user.pk)
    return {provider.value: (token.token, token.host) for provider, token in stored.items()}


def invalid(provider: str) -> str:
    return f"Invalid token. Please make sure it is a valid {provider} token."


async def add(rest: httpx.AsyncClient, provider_tokens: Any, **body: Any) -> tuple[int, Any]:
    response = await rest.post(ADD, json={"provider_tokens": provider_tokens, **body})
    return response.status_code, response.json()


async def ask(rest: httpx.AsyncClient, path: str, **query: Any) -> tuple[int, Any]:
    response = await rest.get(f"{USER}/{path}", params=query)
    return response.status_code, response.json()


# Tokens


@pytest.mark.parametrize(
    "provider", [each for each in ProviderType if each is not ProviderType.ENTERPRISE_SSO]
)
async def test_a_token_that_its_provider_knows_is_stored_and_never_shown(
    provider: ProviderType, servers: Servers, alice: User, rest: httpx.AsyncClient
) -> None:
    server = servers(provider)
    assert await add(rest, token_of(server)) == (200, STORED)
    assert await astore.call(tokens, alice) == {provider.value: (server.token.token, server.host)}
    await rest.post(SETTINGS, json={})
    answer = await rest.get(SETTINGS)
    assert answer.json()["provider_tokens_set"] == {provider.value: server.host}
    assert server.secret not in answer.text


async def test_providers_that_are_not_named_keep_their_tokens(
    known: GitServer, gitlab: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    assert await add(rest, token_of(gitlab)) == (200, STORED)
    assert await astore.call(tokens, alice) == {
        "github": (known.token.token, known.host),
        "gitlab": (gitlab.token.token, gitlab.host),
    }


async def test_every_wrong_token_is_told_and_then_none_is_stored(
    github: GitServer, gitlab: GitServer, servers: Servers, alice: User, rest: httpx.AsyncClient
) -> None:
    wrong = {**token_of(github, token="wrong"), **token_of(gitlab, token="wrong")}
    given = {**wrong, **token_of(servers(ProviderType.AZURE_DEVOPS))}
    words = f"{invalid('github')} {invalid('gitlab')}"
    assert await add(rest, given, mcp_config={"sse_servers": ["https://a.b"]}) == (401, {"error": words})
    assert await astore.call(tokens, alice) == {}
    assert await astore.call(user_settings.setting_secrets, alice.pk) == {}


async def test_a_wrong_token_leaves_the_stored_one(
    known: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    wrong = token_of(known, token="wrong")
    assert await add(rest, wrong) == (401, {"error": invalid("github")})
    assert await astore.call(tokens, alice) == {"github": (known.token.token, known.host)}


async def test_a_token_of_a_provider_that_nobody_can_ask_is_refused(rest: httpx.AsyncClient) -> None:
    given = {"enterprise_sso": {"token": "t", "host": ""}}
    assert await add(rest, given) == (401, {"error": invalid("enterprise_sso")})


async def test_a_token_is_not_called_wrong_while_its_provider_is_away(
    github: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    github.answer_all(503)
    status, body = await add(rest, token_of(github))
    assert (status, list(body), "Invalid" in body["error"]) == (502, ["error"], False)
    assert await astore.call(tokens, alice) == {}


async def test_a_host_that_is_none_is_refused_in_a_sentence(
    alice: User, github: GitServer, rest: httpx.AsyncClient
) -> None:
    status, body = await add(rest, token_of(github, host="http://git.example.org"))
    words = "A git provider is asked over https only, except on this machine itself."
    assert (status, body) == (400, {"error": words})
    assert await astore.call(tokens, alice) == {}


async def test_what_a_form_sends_for_providers_that_were_left_empty_changes_nothing(
    known: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    empty = {"token": "", "host": ""}
    given = {"github": empty, "gitlab": empty, "bitbucket": empty, "azure_devops": empty}
    assert await add(rest, given) == (200, STORED)
    assert await astore.call(tokens, alice) == {"github": (known.token.token, known.host)}
    assert known.asked == []


@pytest.mark.parametrize("token", ["", None, "  "])
async def test_a_stored_token_is_never_sent_to_another_host(
    known: GitServer, servers: Servers, alice: User, rest: httpx.AsyncClient, token: str | None
) -> None:
    other = servers(ProviderType.GITHUB)
    words = "The host of github has changed. Enter the token for the new host."
    given = {"github": {"token": token, "host": other.host}}
    assert await add(rest, given) == (400, {"error": words})
    assert await astore.call(tokens, alice) == {"github": (known.token.token, known.host)}
    assert other.asked == []


async def test_a_stored_token_does_not_follow_to_the_public_host(
    known: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    status, _ = await add(rest, {"github": {"token": "", "host": None}})
    assert status == 400
    assert await astore.call(tokens, alice) == {"github": (known.token.token, known.host)}


async def test_a_form_that_sends_the_stored_host_again_changes_nothing(
    known: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    assert await add(rest, {"github": {"token": "", "host": known.host}}) == (200, STORED)
    assert await astore.call(tokens, alice) == {"github": (known.token.token, known.host)}


async def test_a_new_token_moves_to_the_host_that_is_given(
    known: GitServer, servers: Servers, alice: User, rest: httpx.AsyncClient
) -> None:
    other = servers(ProviderType.GITHUB)
    given = {"github": {"token": other.secret, "host": other.host}}
    assert await add(rest, given) == (200, STORED)
    assert await astore.call(tokens, alice) == {"github": (other.secret, other.host)}


async def test_a_new_token_without_a_host_stays_at_the_stored_one(
    known: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    known.secret = secrets.token_hex()
    assert await add(rest, {"github": {"token": known.secret}}) == (200, STORED)
    assert await astore.call(tokens, alice) == {"github": (known.secret, known.host)}


async def test_whose_token_it_is_is_stored_with_it(
    github: GitServer, alice: User, rest: httpx.AsyncClient
) -> None:
    await add(rest, token_of(github))
    stored = (await astore.call(user_settings.provider_tokens, alice.pk))[ProviderType.GITHUB]
    assert stored == ProviderToken(token=github.secret, host=github.host, user_id="7")


async def test_tool_servers_that_come_with_tokens_are_stored(alice: User, rest: httpx.AsyncClient) -> None:
    assert await add(rest, {}, mcp_config={"sse_servers": ["https://a.b"]}) == (200, STORED)
    await rest.post(SETTINGS, json={})
    found = (await rest.get(SETTINGS)).json()["mcp_config"]
    assert found["sse_servers"] == [{"url": "https://a.b", "api_key": None}]
    assert await add(rest, {}) == (200, STORED)
    assert SettingSecret.MCP_CONFIG in await astore.call(user_settings.setting_secrets, alice.pk)


NO_TOKENS: list[tuple[Any, Problem]] = [
    ({"provider_tokens": {"cvs": {}}}, Problem("enum", ["body", "provider_tokens", "cvs", "[key]"])),
    ({"provider_tokens": []}, Problem("dict_type", ["body", "provider_tokens"])),
    (
        {"provider_tokens": {"github": {"token": 5}}},
        Problem("string_type", ["body", "provider_tokens", "github", "token"]),
    ),
    ({"mcp_config": {"x": 1}}, Problem("extra_forbidden", ["body", "mcp_config", "x"])),
]


async def test_what_can_be_no_token_is_refused(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for body, problem in NO_TOKENS:
        with subtests.test(body=body, problem=problem):
            response = await rest.post(ADD, json=body)
            assert (response.status_code, response.json()) == (422, problem)


async def test_every_token_can_be_forgotten_and_nothing_else_is(
    known: GitServer, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(store_token, bob, known)
    await rest.post("/api/secrets", json={"name": "a", "value": "v"})
    await rest.post(SETTINGS, json={"llm_api_key": "sk-1"})
    response = await rest.post(UNSET)
    assert (response.status_code, response.json()) == (200, {"message": "Unset Git provider tokens"})
    assert await astore.call(tokens, alice) == {}
    assert list(await astore.call(tokens, bob)) == ["github"]
    assert (await rest.get(SETTINGS)).json()["llm_api_key_set"] is True
    assert len((await rest.get("/api/secrets")).json()["custom_secrets"]) == 1


# What they open

REPOSITORY = {
    "full_name": "acme/site",
    "git_provider": "github",
    "is_public": False,
    "owner_type": "organization",
    "main_branch": "main",
}
MAIN = {"name": "main", "commit_sha": "a" * 40, "protected": True, "last_push_date": None}
QUESTIONS: dict[str, dict[str, Any]] = {
    "info": {},
    "installations": {"provider": "github"},
    "repositories": {},
    "search/repositories": {"query": "site"},
    "search/branches": {"repository": "acme/site", "query": "log"},
    "suggested-tasks": {},
    "repository/branches": {"repository": "acme/site"},
    "repository/acme/site/microagents": {},
    "repository/acme/site/microagents/content": {"file_path": ".openhands/microagents/deploy.md"},
}
"""All nine, with a query that can be answered."""


async def test_without_a_token_a_question_is_a_401_with_a_bare_text(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in QUESTIONS:
        with subtests.test(path):
            status, body = await ask(rest, path, **QUESTIONS[path])
            assert status == 401
            assert body in (NO_TOKEN, "Unable to access repo acme/site")


async def test_a_token_that_opens_nothing_any_more_is_a_401_with_a_bare_text(
    known: GitServer, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    known.answer_all(401)
    for path in QUESTIONS:
        with subtests.test(path):
            status, body = await ask(rest, path, **QUESTIONS[path])
            assert (status, type(body)) == (401, str)


@pytest.mark.parametrize("path", ["info", "installations", "repositories", "search/repositories"])
async def test_a_provider_that_fails_is_a_500_with_a_bare_text(
    path: str, known: GitServer, rest: httpx.AsyncClient
) -> None:
    known.answer_all(503)
    status, body = await ask(rest, path, **QUESTIONS[path])
    assert (status, type(body)) == (500, str)
    assert known.secret not in body


async def test_nobody_is_let_in_where_credentials_are_asked_for(
    accounts: None, known: GitServer, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in QUESTIONS:
        with subtests.test(path):
            assert await ask(rest, path, **QUESTIONS[path]) == (401, {"detail": "Unauthorized"})
            assert known.asked == []


async def test_a_users_tokens_answer_nobody_else(
    accounts: None, known: GitServer, bob: User, rest: httpx.AsyncClient
) -> None:
    _, key = await astore.call(ApiToken.issue, bob.pk, "laptop")
    response = await rest.get(f"{USER}/info", headers={"authorization": f"Bearer {key}"})
    assert (response.status_code, response.json()) == (401, NO_TOKEN)


async def test_the_user_is_told_who_they_are(known: GitServer, rest: httpx.AsyncClient) -> None:
    assert await ask(rest, "info") == (
        200,
        {
            "id": "7",
            "login": "alice",
            "avatar_url": "https://avatars.example/7",
            "company": "Acme",
            "name": "Alice",
            "email": None,
        },
    )


async def test_installations_are_listed(known: GitServer, rest: httpx.AsyncClient) -> None:
    assert await ask(rest, "installations", provider="github") == (200, ["41"])


@pytest.mark.parametrize("provider", ["gitlab", "enterprise_sso"])
async def test_a_provider_without_installations_is_a_400_with_a_bare_text(
    provider: str, known: GitServer, rest: httpx.AsyncClient
) -> None:
    status, body = await ask(rest, "installations", provider=provider)
    assert (status, body) == (400, f"Provider {provider} has no installations.")


async def test_repositories_come_in_pages_whose_first_item_says_whether_there_are_more(
    known: GitServer, rest: httpx.AsyncClient
) -> None:
    _, first = await ask(rest, "repositories", page=1, per_page=3, sort="pushed")
    status, last = await ask(rest, "repositories", page=2, per_page=3, selected_provider="github")
    assert (status, [each["full_name"] for each in (*first, *last)]) == (
        200,
        ["acme/.openhands", "acme/docs", "acme/site", "acme/tools"],
    )
    assert first[2].items() >= REPOSITORY.items()
    assert ['rel="next"' in (page[0]["link_header"] or "") for page in (first, last)] == [True, False]


async def test_repositories_of_one_installation_are_listed(known: GitServer, rest: httpx.AsyncClient) -> None:
    status, found = await ask(rest, "repositories", installation_id="41", selected_provider="github")
    assert (status, len(found)) == (200, 4)
    assert known.asked[-1].path[-4:] == ("user", "installations", "41", "repositories")


async def test_repositories_are_found_by_name(known: GitServer, rest: httpx.AsyncClient) -> None:
    status, found = await ask(rest, "search/repositories", query="acme/site")
    assert (status, [each["full_name"] for each in found]) == (200, ["acme/site"])


async def test_branches_are_found_by_name(known: GitServer, rest: httpx.AsyncClient) -> None:
    given = {"repository": "acme/site", "query": "main", "selected_provider": "github"}
    status, found = await ask(rest, "search/branches", **given)
    assert (status, [each["name"] for each in found]) == (200, ["main"])


async def test_branches_come_in_pages(known: GitServer, rest: httpx.AsyncClient) -> None:
    status, page = await ask(rest, "repository/branches", repository="acme/site", per_page=2)
    assert (status, page["branches"][0]) == (200, MAIN)
    assert {name: page[name] for name in page if name != "branches"} == {
        "has_next_page": True,
        "current_page": 1,
        "per_page": 2,
        "total_count": None,
    }


async def test_tasks_are_suggested(known: GitServer, rest: httpx.AsyncClient) -> None:
    status, tasks = await ask(rest, "suggested-tasks")
    assert status == 200
    assert {(each["git_provider"], each["task_type"]) for each in tasks} >= {("github", "MERGE_CONFLICTS")}
    assert all(set(each) == set(base.GitTask.__annotations__) for each in tasks)


async def test_microagents_are_listed_and_read(known: GitServer, rest: httpx.AsyncClient) -> None:
    status, found = await ask(rest, "repository/acme/site/microagents")
    deploy = {"name": "deploy", "path": ".openhands/microagents/deploy.md", "created_at": DATE}
    assert (status, deploy in found) == (200, True)
    assert await ask(rest, "repository/acme/site/microagents/content", file_path=deploy["path"]) == (
        200,
        {
            "content": "Ask before you deploy.",
            "path": deploy["path"],
            "triggers": ["deploy", "release"],
            "git_provider": "github",
        },
    )


async def test_a_microagent_that_is_gone_is_a_404_and_a_path_outside_a_400(
    known: GitServer, rest: httpx.AsyncClient
) -> None:
    content = "repository/acme/site/microagents/content"
    gone = await ask(rest, content, file_path=".openhands/microagents/gone.md")
    outside = await ask(rest, content, file_path="secrets.md")
    assert [(status, type(body)) for status, body in (gone, outside)] == [(404, str), (400, str)]


async def test_a_repository_that_no_token_opens_is_a_401(known: GitServer, rest: httpx.AsyncClient) -> None:
    answer = await ask(rest, "repository/acme/nowhere/microagents")
    assert answer == (401, "Unable to access repo acme/nowhere")


WRONG_QUERIES: list[tuple[str, dict[str, Any], Problem]] = [
    ("installations", {}, Problem("missing", ["query", "provider"])),
    ("installations", {"provider": "cvs"}, Problem("enum", ["query", "provider"])),
    ("repositories", {"selected_provider": "cvs"}, Problem("enum", ["query", "selected_provider"])),
    ("repositories", {"page": "two"}, Problem("int_parsing", ["query", "page"])),
    ("search/repositories", {}, Problem("missing", ["query", "query"])),
    ("search/branches", {"repository": "a/b"}, Problem("missing", ["query", "query"])),
    ("repository/branches", {}, Problem("missing", ["query", "repository"])),
    ("repository/a/b/microagents/content", {}, Problem("missing", ["query", "file_path"])),
]


async def test_a_query_that_cannot_be_asked_is_refused(
    known: GitServer, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, query, problem in WRONG_QUERIES:
        with subtests.test(path=path, query=query):
            assert await ask(rest, path, **query) == (422, problem)
            assert known.asked == []
