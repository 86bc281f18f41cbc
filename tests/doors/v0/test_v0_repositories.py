"""Repositories behind the V0 door: who may begin there, and whose pull requests are still open."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation
from conversations.store import creation
from sessions_app import astore
from sessions_app.git_providers.base import ProviderType
from sessions_app.models import SecretKind
from sessions_app.settings import user_settings
from tests.support.servers.git_server import CLOSED, MERGED, OPEN, GitServer
from tests.support.wires.v0 import CONVERSATIONS, NEW_ID

pytestmark = pytest.mark.one_engine

LIST = "/api/microagent-management/conversations"


@pytest.fixture
def github(alice: User) -> Iterator[GitServer]:
    """A provider of which alice has stored a token."""
    with GitServer(ProviderType.GITHUB, secrets.token_hex()) as server:
        store_token(alice, server)
        yield server


def store_token(user: User, server: GitServer) -> None:
    token = server.token
    user_settings.store_secret(
        user.pk, SecretKind.PROVIDER_TOKEN, name=server.provider, value=token.token, host=token.host
    )


async def test_a_conversation_begins_at_a_repository_that_the_users_token_opens(
    github: GitServer, rest: httpx.AsyncClient
) -> None:
    body = {"repository": github.full_name("site"), "git_provider": "github"}
    response = await rest.post(CONVERSATIONS, json=body)
    assert (response.status_code, response.json()["conversation_id"]) == (200, NEW_ID)
    info = (await rest.get(f"{CONVERSATIONS}/{response.json()['conversation_id']}")).json()
    assert (info["selected_repository"], info["git_provider"]) == ("acme/site", "github")


async def test_a_microagents_repository_counts_where_the_body_names_none(
    github: GitServer, rest: httpx.AsyncClient
) -> None:
    body = {"create_microagent": {"repo": "acme/site", "git_provider": "github", "title": "Rules"}}
    conversation_id = (await rest.post(CONVERSATIONS, json=body)).json()["conversation_id"]
    info = (await rest.get(f"{CONVERSATIONS}/{conversation_id}")).json()
    shown = [info[name] for name in ("selected_repository", "git_provider", "trigger")]
    assert shown == ["acme/site", "github", "microagent_management"]


async def test_a_repository_that_no_token_opens_is_refused_and_nothing_is_stored(
    github: GitServer, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for repository in ["acme/nowhere", "no name", "../..", "a/b?c=d"]:
        with subtests.test(repository=repository):
            response = await rest.post(CONVERSATIONS, json={"repository": repository})
            assert (response.status_code, response.json()) == (401, f"Unable to access repo {repository}")
            assert not await astore.call(Conversation.objects.exists)


def with_pull_requests(owner: User, **numbers: Any) -> None:
    for name, number in numbers.items():
        creation.create(
            owner,
            conversation_id=name,
            repository="acme/site",
            provider="github",
            trigger="microagent_management",
            pr_number=number,
        )


async def listed(rest: httpx.AsyncClient, **query: Any) -> list[list[str]]:
    """Return the ids of every page."""
    pages: list[list[str]] = []
    page_id: str | None = None
    while page_id or not pages:
        given = {"page_id": page_id} if page_id else {}
        response = await rest.get(LIST, params={"selected_repository": "acme/site", **query, **given})
        body = response.json()
        pages.append([each["conversation_id"] for each in body["results"]])
        page_id = body["next_page_id"]
    return pages


async def test_conversations_whose_pull_request_is_closed_are_left_out_of_full_pages(
    alice: User, github: GitServer, rest: httpx.AsyncClient
) -> None:
    await astore.call(
        with_pull_requests,
        alice,
        a=[OPEN],
        b=[CLOSED],
        c=[],
        d=[MERGED],
        e=[CLOSED, OPEN],
        f=[OPEN, CLOSED],
        g=[999],
    )
    assert await listed(rest, limit=2) == [["g", "e"], ["c", "a"]]


async def test_all_pull_requests_of_a_page_are_asked_about_at_once_and_once(
    alice: User, github: GitServer, rest: httpx.AsyncClient
) -> None:
    await astore.call(with_pull_requests, alice, a=[OPEN], b=[CLOSED])
    github.wait_for_a_crowd(2)
    first = await listed(rest)
    asked = len(github.asked)
    assert (first, await listed(rest), len(github.asked)) == ([["a"]], [["a"]], asked)
    assert github.most_at_once == 2


async def test_without_a_token_every_pull_request_counts_as_open(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(with_pull_requests, alice, a=[OPEN], b=[CLOSED])
    assert await listed(rest) == [["b", "a"]]


async def test_a_page_that_finds_only_closed_ones_ends_somewhere_and_goes_on_from_there(
    alice: User, github: GitServer, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convserver.api.v0.git.microagents.CANDIDATES_MAX", 4)
    await astore.call(with_pull_requests, alice, a=[OPEN], **{f"x{n}": [CLOSED] for n in range(6)})
    pages = await listed(rest, limit=1)
    assert ([page for page in pages if page], len(pages)) == ([["a"]], 2)
