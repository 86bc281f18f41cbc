"""What git providers are asked in a user's name, what comes of it, and where their tokens never go."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import secrets
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import product

import httpx
import pytest

from conversations.payloads import bounds
from convserver.event_loop import in_loop
from sessions_app.git_providers import client, http, microagents
from sessions_app.git_providers.base import (
    GitAuthenticationError,
    GitNotFound,
    GitProviderError,
    GitRepository,
    GitUserInfo,
    InvalidName,
    NotOffered,
    ProviderToken,
    ProviderType,
    outcomes,
)
from sessions_app.git_providers.client import GitProviders
from sessions_app.outbound import proxies
from tests.support.servers.git_server import CLOSED, DATE, MERGED, OPEN, REFS, GitServer

GITHUB, GITLAB = ProviderType.GITHUB, ProviderType.GITLAB
BITBUCKET, AZURE_DEVOPS = ProviderType.BITBUCKET, ProviderType.AZURE_DEVOPS
FOUR = (GITHUB, GITLAB, BITBUCKET, AZURE_DEVOPS)
REQUIRED = "Git provider token required. (such as GitHub)."
NEXT_PAGE = re.compile(r'<[^>]*[?&]page=(\d+)(?:&[^>]*)?>;\s*rel="next"')
"""How the web frontend finds the next page."""

Question = Callable[[GitProviders], Awaitable[object]]
QUESTIONS: dict[str, Question] = {
    "verify_access": lambda git: git.verify_access("acme/site", None),
    "user": lambda git: git.user(),
    "installations": lambda git: git.installations(GITHUB),
    "repositories": lambda git: git.repositories(),
    "search_repositories": lambda git: git.search_repositories("site"),
    "branches": lambda git: git.branches("acme/site"),
    "search_branches": lambda git: git.search_branches("acme/site", "login"),
    "suggested_tasks": lambda git: git.suggested_tasks(),
    "microagents": lambda git: git.microagents("acme/site"),
    "microagent_content": lambda git: git.microagent_content("acme/site", ".openhands/microagents/repo.md"),
}


def fresh(provider: ProviderType) -> GitServer:
    """Return a provider with a token of one test, or of one row, alone."""
    return GitServer(provider, secrets.token_hex())


@pytest.fixture(params=FOUR)
def git(request: pytest.FixtureRequest) -> Iterator[GitServer]:
    """Each of the four providers in turn, with a token of this test alone."""
    with fresh(request.param) as server:
        yield server


@pytest.fixture
def github() -> Iterator[GitServer]:
    with fresh(GITHUB) as server:
        yield server


@pytest.fixture
def gitlab() -> Iterator[GitServer]:
    """GitLab, for who has tokens of two providers."""
    with fresh(GITLAB) as server:
        yield server


@pytest.fixture
def bitbucket() -> Iterator[GitServer]:
    with fresh(BITBUCKET) as server:
        yield server


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Everything sent, none of which leaves this process: each is answered with 401."""
    sent: list[httpx.Request] = []

    async def refuse(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(401)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", refuse)
    return sent


def of(*servers: GitServer) -> GitProviders:
    """Return a user's providers, in this order."""
    return GitProviders({server.provider: server.token for server in servers})


def with_wrong_token(server: GitServer) -> GitProviders:
    """Return the providers of somebody whose token opens nothing."""
    return GitProviders({server.provider: replace(server.token, token=f"wrong-{secrets.token_hex()}")})


def with_host(provider: ProviderType, host: str | None) -> GitProviders:
    """Return the providers of somebody who gave this host."""
    return GitProviders({provider: ProviderToken(token=secrets.token_hex(), host=host)})


def names(server: GitServer, *repositories: str) -> list[str]:
    """Return the whole names of repositories."""
    return [server.full_name(name) for name in repositories]


def paths(server: GitServer) -> list[str]:
    return ["/".join(asked.path) for asked in server.asked]


# Access to a repository


REPOSITORY: dict[ProviderType, GitRepository] = {
    GITHUB: {
        "id": "2",
        "full_name": "acme/site",
        "git_provider": "github",
        "is_public": False,
        "stargazers_count": 3,
        "link_header": None,
        "pushed_at": DATE,
        "owner_type": "organization",
        "main_branch": "main",
    },
    GITLAB: {
        "id": "2",
        "full_name": "acme/site",
        "git_provider": "gitlab",
        "is_public": False,
        "stargazers_count": 3,
        "link_header": None,
        "pushed_at": DATE,
        "owner_type": "organization",
        "main_branch": "main",
    },
    BITBUCKET: {
        "id": "{2}",
        "full_name": "acme/site",
        "git_provider": "bitbucket",
        "is_public": False,
        "stargazers_count": None,
        "link_header": None,
        "pushed_at": DATE,
        "owner_type": "organization",
        "main_branch": "main",
    },
    AZURE_DEVOPS: {
        "id": "2",
        "full_name": "acme/web/site",
        "git_provider": "azure_devops",
        "is_public": False,
        "stargazers_count": None,
        "link_header": None,
        "pushed_at": None,
        "owner_type": "organization",
        "main_branch": "main",
    },
}


async def test_a_repository_that_the_token_opens_is_given(git: GitServer) -> None:
    found = await of(git).verify_access(git.full_name("site"), git.provider)
    assert found == REPOSITORY[git.provider]


async def test_a_repository_that_is_not_shown_is_not_accessible(git: GitServer) -> None:
    name = git.full_name("nothing")
    with pytest.raises(GitAuthenticationError, match=f"^Unable to access repo {name}$"):
        await of(git).verify_access(name, git.provider)


async def test_a_wrong_token_opens_no_repository(git: GitServer) -> None:
    name = git.full_name("site")
    with pytest.raises(GitAuthenticationError, match=f"^Unable to access repo {name}$"):
        await with_wrong_token(git).verify_access(name, None)


NO_TOKENS: dict[str, dict[ProviderType, ProviderToken]] = {
    "none": {},
    "blank": {GITHUB: ProviderToken(token="  ")},
    "of no provider": {ProviderType.ENTERPRISE_SSO: ProviderToken(token="opens nothing")},
}


async def test_without_a_token_one_is_asked_for(subtests: pytest.Subtests) -> None:
    refused = pytest.raises(GitAuthenticationError, match=f"^{re.escape(REQUIRED)}$")
    for (name, question), (tokens_name, tokens) in product(QUESTIONS.items(), NO_TOKENS.items()):
        with subtests.test(name, tokens=tokens_name), refused:
            await question(GitProviders(tokens))


async def test_a_provider_without_a_token_is_not_replaced_by_another(github: GitServer) -> None:
    with pytest.raises(GitAuthenticationError, match="token required"):
        await of(github).repositories(provider=GITLAB)


async def test_the_given_provider_is_asked_first(github: GitServer, gitlab: GitServer) -> None:
    found = await of(github, gitlab).verify_access("acme/site", GITLAB)
    assert found["git_provider"] == "gitlab"
    assert github.asked == []


async def test_the_others_are_asked_when_the_given_one_does_not_have_it(
    github: GitServer, gitlab: GitServer
) -> None:
    tokens = {GITLAB: replace(gitlab.token, token=secrets.token_hex()), GITHUB: github.token}
    found = await GitProviders(tokens).verify_access("acme/site", GITLAB)
    assert found["git_provider"] == "github"
    assert len(gitlab.asked) == len(github.asked) == 1


async def test_all_are_asked_when_the_given_one_has_no_token(github: GitServer) -> None:
    assert (await of(github).verify_access("acme/site", GITLAB))["git_provider"] == "github"


async def test_a_provider_that_is_down_does_not_hide_what_another_has(
    github: GitServer, gitlab: GitServer
) -> None:
    github.answer_all(500)
    found = await of(github, gitlab).verify_access("acme/site", GITHUB)
    assert found["git_provider"] == "gitlab"


NO_NAMES = [
    "",
    "site",
    "..",
    "acme/..",
    "../user",
    "acme//site",
    "acme/site\n",
    "acme/\x00",
    "a\\b/c",
    "acme/\ud800",
]


async def test_a_name_that_no_repository_can_have_is_never_asked_for(subtests: pytest.Subtests) -> None:
    for provider, name in product(FOUR, NO_NAMES):
        with subtests.test(name=name, provider=provider), fresh(provider) as git:
            with pytest.raises(GitAuthenticationError) as raised:
                await of(git).verify_access(name, None)
            assert str(raised.value).encode().startswith(b"Unable to access repo ")
            # A question mark, which stands for what is no character, may be part of a name.
            assert git.asked == [] or name.endswith("\ud800")


async def test_what_means_something_in_an_address_means_nothing_in_a_name(github: GitServer) -> None:
    with pytest.raises(GitAuthenticationError):
        await of(github).verify_access("acme/site?x=%2e%2e#y", None)
    assert github.asked[0].path[-2:] == ("acme", "site?x=%2e%2e#y")


# What is kept


async def test_a_question_that_was_answered_is_not_asked_again(git: GitServer) -> None:
    for _ in range(2):
        await of(git).verify_access(git.full_name("site"), None)
        assert await of(git).is_open(git.full_name("site"), git.provider, CLOSED) is False
    assert len(git.asked) == 2


async def test_a_refusal_is_kept_too(git: GitServer) -> None:
    for _ in range(2):
        with pytest.raises(GitAuthenticationError):
            await of(git).verify_access(git.full_name("nothing"), None)
    assert len(git.asked) == 1


async def test_a_refusal_has_a_lifetime_of_its_own(git: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "NO_ACCESS_S", 0.0)
    for _ in range(2):
        with pytest.raises(GitAuthenticationError):
            await of(git).verify_access(git.full_name("nothing"), None)
    assert len(git.asked) == 2


async def test_another_token_is_not_served_what_the_first_one_opened(git: GitServer) -> None:
    name = git.full_name("site")
    await of(git).verify_access(name, None)
    with pytest.raises(GitAuthenticationError):
        await with_wrong_token(git).verify_access(name, None)


async def test_a_failure_is_not_kept(git: GitServer) -> None:
    name = git.full_name("site")
    git.answer_all(500)
    with pytest.raises(GitAuthenticationError):
        await of(git).verify_access(name, None)
    git.recover()
    assert (await of(git).verify_access(name, None))["full_name"] == name


# What goes wrong


async def a_closed_port() -> int:
    """Return a port of this machine where nobody listens."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        port: int = server.sockets[0].getsockname()[1]
    return port


async def test_a_token_that_is_refused_is_an_authentication_error(subtests: pytest.Subtests) -> None:
    for provider, status in product(FOUR, [401, 403, 203]):
        with subtests.test(provider=provider, status=status), fresh(provider) as git:
            git.answer_all(status)
            with pytest.raises(GitAuthenticationError):
                await of(git).user()


TROUBLES: list[tuple[int, dict[str, str]]] = [
    (500, {}),
    (502, {}),
    (429, {}),
    (418, {}),
    (403, {"x_ratelimit_remaining": "0"}),
    (403, {"retry_after": "9"}),
]


async def test_a_provider_in_trouble_does_not_make_a_token_wrong(subtests: pytest.Subtests) -> None:
    for provider, (status, headers) in product(FOUR, TROUBLES):
        with subtests.test(status=status, provider=provider), fresh(provider) as git:
            git.answer_all(status, **headers)
            with pytest.raises(GitProviderError) as raised:
                await of(git).user()
            assert type(raised.value) is GitProviderError


NONSENSE = [b"", b"<html>", b'{"id"', b"null", b"[]", b"{}", b"7", b'{"id": true, "uuid": [], "values": 0}']


async def test_nonsense_is_an_error_of_the_provider(subtests: pytest.Subtests) -> None:
    for provider, body in product(FOUR, NONSENSE):
        with subtests.test(provider=provider, body=body), fresh(provider) as git:
            git.answer_all(200, body)
            answers = await outcomes(ask(of(git)) for ask in QUESTIONS.values())
            assert [
                answer for answer in answers if not isinstance(answer, GitProviderError) and answer != []
            ] == []


async def test_a_provider_that_never_answers_is_waited_for_no_longer(
    git: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "READ_S", 0.05)
    monkeypatch.setattr(http, "TOTAL_S", 3_600.0)
    git.never_answer()
    with pytest.raises(GitProviderError, match="did not answer in time"):
        await of(git).user()


async def test_an_answer_without_end_is_waited_for_no_longer(
    git: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TOTAL_S", 0.1)
    git.answer_without_end()
    with pytest.raises(GitProviderError, match="did not answer in time"):
        await of(git).user()


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(
    git: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ANSWER_MAX_BYTES", 10)
    git.answer_without_end()
    with pytest.raises(GitProviderError, match="too long"):
        await of(git).user()


async def test_an_answer_of_too_many_values_is_not_decoded(git: GitServer) -> None:
    git.answer_all(200, f"[{'1,' * bounds.LARGE_VALUES_MAX}1]".encode())
    with pytest.raises(GitProviderError, match="too long"):
        await of(git).user()


async def test_an_answer_that_would_have_to_be_unpacked_is_refused(git: GitServer) -> None:
    git.answer_all(200, b"...", Content_Encoding="gzip")
    with pytest.raises(GitProviderError, match="not asked for"):
        await of(git).user()


async def test_a_provider_that_is_not_there_is_an_error() -> None:
    git = with_host(GITHUB, f"127.0.0.1:{await a_closed_port()}")
    with pytest.raises(GitProviderError, match="could not be asked"):
        await git.user()


async def test_one_host_is_not_asked_more_at_once_than_is_allowed(github: GitServer) -> None:
    github.wait_for_a_crowd(http.CONCURRENT_MAX + 1)
    git = of(github)
    await asyncio.gather(
        *(git.is_open("acme/site", GITHUB, number) for number in range(10, 10 + 2 * http.CONCURRENT_MAX))
    )
    assert github.most_at_once <= http.CONCURRENT_MAX


# Where tokens go


async def test_a_redirect_to_another_host_is_not_followed(git: GitServer) -> None:
    with GitServer(git.provider, git.secret) as elsewhere:
        git.answer_all(302, Location=f"http://{elsewhere.address}/")
        with pytest.raises(GitProviderError, match="redirects to another host"):
            await of(git).user()
        assert elsewhere.asked == []


async def test_a_redirect_to_the_same_name_by_another_way_is_not_followed(github: GitServer) -> None:
    github.answer_all(307, Location=f"https://{github.address}/user")
    with pytest.raises(GitProviderError, match="redirects to another host"):
        await of(github).user()


async def test_a_question_with_a_body_is_not_sent_on(github: GitServer) -> None:
    github.answer_all(307, Location="/api/graphql")
    with pytest.raises(GitProviderError, match="redirects to another host"):
        await of(github).suggested_tasks()
    assert len(github.asked) == 1


async def test_a_renamed_repository_is_found_where_its_host_says(github: GitServer) -> None:
    github.moved[("api", "v3", "repos", "acme", "old")] = "/api/v3/repos/acme/site"
    assert (await of(github).verify_access("acme/old", None))["full_name"] == "acme/site"
    assert all(asked.headers["authorization"] for asked in github.asked)


async def test_redirects_without_end_are_left(github: GitServer) -> None:
    github.answer_all(302, Location="/api/v3/user")
    with pytest.raises(GitProviderError, match="without end"):
        await of(github).user()
    assert len(github.asked) == http.REDIRECTS_MAX + 1


async def test_a_redirect_to_a_name_that_cannot_be_read_is_left(github: GitServer) -> None:
    github.answer_all(302, Location="https://xn--a/api/v3/user")
    with pytest.raises(GitProviderError, match="could not be asked"):
        await of(github).user()


REFUSED_HOSTS = [
    "ftp://git.example.com",
    "file:///etc/passwd",
    "http://git.example.com",
    "git.example.com@evil.example",
    "alice:secret@git.example.com",
    "https://alice:secret@git.example.com",
    "git.example.com/../evil",
    "git.example.com?x=",
    "git.example.com#x",
    "git.example.com\\@evil.example",
    "git example.com",
    "git.example.com\r\nHost: evil.example",
    "git.example.com:0",
    "git.example.com:99999",
    "git.example.com:https",
    "-git.example.com",
    ".example.com",
    "[::1",
    "[:::::]",
    "gït.example.com",
    "x" * 64 + ".example.com",
    "xn--a",
    "xn--xn--a.example.com",
    ".".join(["x" * 60] * 5),
    "//evil.example",
    "https://",
]


async def test_a_host_that_is_not_plain_is_refused_and_not_repeated(
    public: list[httpx.Request], subtests: pytest.Subtests
) -> None:
    for host, provider in product(REFUSED_HOSTS, FOUR):
        with subtests.test(host=host, provider=provider):
            with pytest.raises(InvalidName) as raised:
                await with_host(provider, host).user()
            assert "evil" not in str(raised.value)
            assert "secret" not in str(raised.value)
            assert public == []


@pytest.mark.parametrize("provider", [GITHUB, GITLAB, BITBUCKET])
async def test_a_path_behind_a_host_is_for_azure_devops_alone(
    provider: ProviderType, public: list[httpx.Request]
) -> None:
    with pytest.raises(InvalidName):
        await with_host(provider, "git.example.com/acme").user()


async def test_azure_devops_needs_its_organisation(public: list[httpx.Request]) -> None:
    with pytest.raises(InvalidName, match=r"dev\.azure\.com/ORGANISATION"):
        await with_host(AZURE_DEVOPS, None).user()


GIVEN_HOSTS: list[tuple[ProviderType, str | None, str]] = [
    (GITHUB, None, "https://api.github.com/user"),
    (GITHUB, "", "https://api.github.com/user"),
    (GITHUB, "https://GitHub.com/", "https://api.github.com/user"),
    (GITHUB, "git.example.com", "https://git.example.com/api/v3/user"),
    (GITHUB, "git.example.com:8443", "https://git.example.com:8443/api/v3/user"),
    (GITHUB, "acme.ghe.com", "https://api.acme.ghe.com/user"),
    (GITHUB, "localhost:3000", "http://localhost:3000/api/v3/user"),
    (GITHUB, "https://127.0.0.1:3000", "https://127.0.0.1:3000/api/v3/user"),
    (GITHUB, "[::1]:3000", "http://[::1]:3000/api/v3/user"),
    (GITHUB, "localhost.example.com", "https://localhost.example.com/api/v3/user"),
    (GITLAB, None, "https://gitlab.com/api/v4/user"),
    (GITLAB, "gitlab.example.com", "https://gitlab.example.com/api/v4/user"),
    (BITBUCKET, None, "https://api.bitbucket.org/2.0/user"),
    (BITBUCKET, "bitbucket.org", "https://api.bitbucket.org/2.0/user"),
    (
        AZURE_DEVOPS,
        "https://dev.azure.com/acme",
        "https://dev.azure.com/acme/_apis/connectionData?api-version=7.1-preview",
    ),
    (
        AZURE_DEVOPS,
        "tfs.example.com/tfs/Collection",
        "https://tfs.example.com/tfs/Collection/_apis/connectionData?api-version=7.1-preview",
    ),
]


async def test_a_token_goes_to_the_host_that_was_given_with_it(
    public: list[httpx.Request], subtests: pytest.Subtests
) -> None:
    for provider, host, address in GIVEN_HOSTS:
        with subtests.test(provider=provider, host=host):
            public.clear()
            with pytest.raises(GitAuthenticationError):
                await with_host(provider, host).user()
            assert [str(request.url) for request in public] == [address]


async def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated(
    github: GitServer, subtests: pytest.Subtests
) -> None:
    for token in ["two\nlines", "a\r\nHost: evil.example", "nul\0", "tokén"]:
        with subtests.test(token=token):
            git = GitProviders({GITHUB: ProviderToken(token=token, host=github.host)})
            with pytest.raises(GitAuthenticationError) as raised:
                await git.user()
            assert token not in str(raised.value)
            assert github.asked == []


@pytest.mark.parametrize("fault", ["none", "refused", "broken", "nonsense", "redirect", "silent", "away"])
async def test_a_token_is_never_told(
    git: GitServer, fault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(http, "READ_S", 0.05 if fault == "silent" else proxies.READ_S)
    providers = of(git)
    match fault:
        case "refused":
            git.answer_all(401)
        case "broken":
            git.answer_all(500)
        case "nonsense":
            git.answer_all(200, b"<html>")
        case "redirect":
            git.answer_all(302, Location="https://evil.example/")
        case "silent":
            git.never_answer()
        case "away":
            away = f"127.0.0.1:{await a_closed_port()}/acme".removesuffix("" if "/" in git.host else "/acme")
            providers = GitProviders({git.provider: replace(git.token, host=away)})
    told = [repr(providers), repr(git.token)]
    for ask in QUESTIONS.values():
        try:
            await ask(providers)
        except GitProviderError as error:
            told.append("".join(traceback.format_exception(error)))
    told += [record.getMessage() for record in caplog.records] + [asked.target for asked in git.asked]
    for form in (git.secret, base64.b64encode(git.token.token.encode()).decode().rstrip("=")[4:-4]):
        assert form not in "\n".join(told)


# Pull requests


PULL_REQUESTS = [(OPEN, True), (MERGED, False), (CLOSED, False), (99, True)]


async def test_a_pull_request_is_open_until_it_is_merged_or_closed(subtests: pytest.Subtests) -> None:
    for provider, (number, is_open) in product(FOUR, PULL_REQUESTS):
        with subtests.test(provider=provider, number=number), fresh(provider) as git:
            assert await of(git).is_open(git.full_name("site"), git.provider, number) is is_open


async def test_a_pull_request_of_a_provider_without_a_token_counts_as_open(git: GitServer) -> None:
    assert await GitProviders({}).is_open(git.full_name("site"), git.provider, CLOSED)


async def test_a_pull_request_that_the_token_does_not_show_counts_as_open(git: GitServer) -> None:
    assert await with_wrong_token(git).is_open(git.full_name("site"), git.provider, CLOSED)


async def test_a_pull_request_of_no_repository_counts_as_open(subtests: pytest.Subtests) -> None:
    for provider, name in product(FOUR, ["", "nonsense", "../..", "acme/\ud800"]):
        with subtests.test(name=name, provider=provider), fresh(provider) as git:
            assert await of(git).is_open(name, git.provider, CLOSED)


SENSELESS = [(500, b""), (200, b"<html>"), (200, b'{"state": 7}')]


async def test_a_pull_request_counts_as_open_until_its_provider_makes_sense(
    subtests: pytest.Subtests,
) -> None:
    for provider, (status, body) in product(FOUR, SENSELESS):
        with subtests.test(provider=provider, status=status, body=body), fresh(provider) as git:
            git.answer_all(status, body)
            assert await of(git).is_open(git.full_name("site"), git.provider, CLOSED)
            git.recover()
            assert not await of(git).is_open(git.full_name("site"), git.provider, CLOSED)


async def test_a_pull_request_of_a_provider_that_is_away_counts_as_open() -> None:
    git = with_host(GITHUB, f"127.0.0.1:{await a_closed_port()}")
    assert await git.is_open("acme/site", GITHUB, CLOSED)


# The user


USER: dict[ProviderType, GitUserInfo] = {
    GITHUB: {
        "id": "7",
        "login": "alice",
        "avatar_url": "https://avatars.example/7",
        "company": "Acme",
        "name": "Alice",
        "email": None,
    },
    GITLAB: {
        "id": "7",
        "login": "alice",
        "avatar_url": "",
        "company": None,
        "name": "Alice",
        "email": "alice@example.com",
    },
    BITBUCKET: {
        "id": "7:alice",
        "login": "alice",
        "avatar_url": "https://avatars.example/7",
        "company": None,
        "name": "Alice",
        "email": None,
    },
    AZURE_DEVOPS: {
        "id": "7",
        "login": "alice@example.com",
        "avatar_url": "http://{address}/acme/_apis/GraphProfile/MemberAvatars/aad.7",
        "company": None,
        "name": "Alice",
        "email": "alice@example.com",
    },
}


async def test_the_user_is_told(git: GitServer) -> None:
    expected = USER[git.provider]
    expected = {**expected, "avatar_url": expected["avatar_url"].format(address=git.address)}
    assert await of(git).user() == expected


def test_a_view_asks_from_its_thread(git: GitServer) -> None:
    assert in_loop(of(git).user)["name"] == "Alice"


async def test_the_user_is_who_the_first_provider_that_answers_says(
    github: GitServer, gitlab: GitServer
) -> None:
    github.answer_all(500)
    assert (await of(github, gitlab).user())["email"] == "alice@example.com"


@pytest.mark.parametrize("first", [GITHUB, GITLAB])
async def test_a_provider_that_is_away_counts_more_than_one_that_refuses(
    github: GitServer, gitlab: GitServer, first: ProviderType
) -> None:
    github.answer_all(500)
    gitlab.answer_all(401)
    servers = (github, gitlab) if first is GITHUB else (gitlab, github)
    for question in ("user", "repositories"):
        with pytest.raises(GitProviderError, match="500"):
            await QUESTIONS[question](of(*servers))


async def test_bitbucket_takes_an_access_token_as_well_as_a_user_and_a_token(bitbucket: GitServer) -> None:
    token = replace(bitbucket.token, token=bitbucket.secret)
    assert (await GitProviders({BITBUCKET: token}).user())["name"] == "Alice"
    assert bitbucket.asked[0].headers["authorization"].startswith("Bearer ")


@pytest.mark.parametrize(
    ("git", "installations"),
    [(GITHUB, ["41"]), (BITBUCKET, ["acme", "locked"]), (AZURE_DEVOPS, ["acme"])],
    indirect=["git"],
)
async def test_installations_are_told(git: GitServer, installations: list[str]) -> None:
    assert await of(git).installations(git.provider) == installations


async def test_gitlab_has_no_installations(gitlab: GitServer) -> None:
    with pytest.raises(NotOffered):
        await of(gitlab).installations(GITLAB)


# Repositories


async def test_repositories_come_page_by_page_as_the_frontend_turns_them(git: GitServer) -> None:
    pages: list[list[str]] = []
    page: int | None = 1
    while page:
        found = await of(git).repositories(provider=git.provider, page=page, per_page=3)
        pages.append([repository["full_name"] for repository in found])
        assert all(repository["link_header"] is None for repository in found[1:])
        link = NEXT_PAGE.search(found[0]["link_header"] or "")
        page = int(link[1]) if link else None
    assert pages == [names(git, ".openhands", "docs", "site"), names(git, "tools")]


async def test_a_listed_repository_is_told_as_a_single_one_is(git: GitServer) -> None:
    found = await of(git).repositories(per_page=100)
    [site] = [repository for repository in found if repository["full_name"] == git.full_name("site")]
    assert site == REPOSITORY[git.provider]


@pytest.mark.parametrize(
    ("git", "installation_id"),
    [(GITHUB, "41"), (BITBUCKET, "acme"), (AZURE_DEVOPS, "acme")],
    indirect=["git"],
)
async def test_repositories_of_one_installation_are_told(git: GitServer, installation_id: str) -> None:
    found = await of(git).repositories(provider=git.provider, installation_id=installation_id)
    assert [repository["full_name"] for repository in found] == names(
        git, ".openhands", "docs", "site", "tools"
    )


async def test_an_installation_that_is_not_the_users_has_nothing(subtests: pytest.Subtests) -> None:
    for provider, name in product(
        [GITHUB, BITBUCKET, AZURE_DEVOPS], ["other", "..", "a/../b", "\ud800", "locked"]
    ):
        refused = pytest.raises(GitProviderError)
        with subtests.test(name=name, provider=provider), fresh(provider) as git, refused:
            await of(git).repositories(provider=provider, installation_id=name)


async def test_a_page_that_cannot_be_is_put_right(subtests: pytest.Subtests) -> None:
    for provider, page, per_page in product(FOUR, [None, 0, -3], [None, 0, -1, 10**9]):
        with subtests.test(provider=provider, page=page, per_page=per_page), fresh(provider) as git:
            assert len(await of(git).repositories(page=page, per_page=per_page)) in (1, 4)


async def test_repositories_of_all_providers_have_one_link_to_what_follows(
    github: GitServer, gitlab: GitServer
) -> None:
    gitlab.answer_all(200, b"[]")
    found = await of(gitlab, github).repositories(per_page=2)
    assert [repository["git_provider"] for repository in found] == ["github", "github"]
    assert NEXT_PAGE.search(found[0]["link_header"] or "")
    gitlab.recover()
    both = GitProviders({GITLAB: gitlab.token, GITHUB: github.token})
    second = await both.repositories(page=2, per_page=2, sort="full_name")
    assert [repository["link_header"] is None for repository in second] == [False, True, True, True]
    assert NEXT_PAGE.search(second[0]["link_header"] or "") is None


async def test_lists_come_without_the_provider_that_fails(github: GitServer, gitlab: GitServer) -> None:
    github.answer_all(500)
    git = of(github, gitlab)
    assert {each["git_provider"] for each in await git.repositories()} == {"gitlab"}
    assert {each["git_provider"] for each in await git.search_repositories("site")} == {"gitlab"}
    assert {each["git_provider"] for each in await git.suggested_tasks()} == {"gitlab"}


SEARCHED = [("o", ["docs", "tools"]), ("nothing", []), ("sit", ["site"])]


async def test_repositories_are_found_by_a_part_of_their_name(subtests: pytest.Subtests) -> None:
    for provider, (query, found) in product(FOUR, SEARCHED):
        with subtests.test(provider=provider, query=query), fresh(provider) as git:
            results = await of(git).search_repositories(query, provider=git.provider)
            wanted = [each["full_name"].rpartition("/")[2] for each in results]
            assert [name for name in wanted if name != ".openhands"] == found


async def test_no_more_repositories_are_found_than_were_asked_for(git: GitServer) -> None:
    assert len(await of(git).search_repositories("s", per_page=1)) == 1


async def test_a_whole_name_finds_one_repository(git: GitServer) -> None:
    found = await of(git).search_repositories(git.full_name("docs"))
    assert [(each["full_name"], each["is_public"]) for each in found] == [(git.full_name("docs"), True)]


async def test_a_name_that_is_not_whole_yet_searches_its_owner(git: GitServer) -> None:
    found = await of(git).search_repositories(git.full_name("do"))
    assert [each["full_name"] for each in found] == names(git, "docs")


async def test_a_web_address_finds_its_repository_on_its_own_host_alone(
    github: GitServer, gitlab: GitServer
) -> None:
    git = of(github, gitlab)
    found = await git.search_repositories(f"https://{gitlab.address}/acme/site.git")
    assert [each["git_provider"] for each in found] == ["gitlab"]
    assert github.asked == []


ODD_QUERIES = ["https://[", "https://[::1", "https://x:y/z", '"\\', "\ud800", " ", "/", "a/b/c/d"]


async def test_whatever_is_searched_for_is_no_error(subtests: pytest.Subtests) -> None:
    for provider, query in product(FOUR, ODD_QUERIES):
        with subtests.test(provider=provider, query=query), fresh(provider) as git:
            assert await of(git).search_repositories(query) is not None


# Branches


async def test_branches_come_page_by_page(git: GitServer) -> None:
    first = await of(git).branches(git.full_name("site"), page=1, per_page=2)
    second = await of(git).branches(git.full_name("site"), page=2, per_page=2)
    told = [branch["name"] for page in (first, second) for branch in page["branches"]]
    assert told == [ref.name for ref in REFS]
    assert {name: value for name, value in first.items() if name != "branches"} == {
        "has_next_page": True,
        "current_page": 1,
        "per_page": 2,
        "total_count": None if git.provider is GITHUB else 3,
    }
    assert not second["has_next_page"]


async def test_a_branch_is_told_with_its_newest_commit(git: GitServer) -> None:
    page = await of(git).branches(git.full_name("site"))
    assert page["branches"][0] == {
        "name": "main",
        "commit_sha": "a" * 40,
        "protected": git.provider in (GITHUB, GITLAB),
        "last_push_date": DATE if git.provider in (GITLAB, BITBUCKET) else None,
    }


async def test_branches_are_found_by_a_part_of_their_name(git: GitServer) -> None:
    found = await of(git).search_branches(git.full_name("site"), "feat", per_page=1, provider=git.provider)
    assert found == [
        {
            "name": "feature/login",
            "commit_sha": "b" * 40,
            "protected": False,
            "last_push_date": None if git.provider is AZURE_DEVOPS else DATE,
        }
    ]


async def test_a_repository_without_access_has_nothing_to_tell(subtests: pytest.Subtests) -> None:
    questions = ("branches", "search_branches", "microagents", "microagent_content")
    refused = pytest.raises(GitAuthenticationError, match="Unable to access repo acme/site")
    for provider, question in product(FOUR, questions):
        with subtests.test(question, provider=provider), fresh(provider) as git, refused:
            await QUESTIONS[question](with_wrong_token(git))


# Suggested tasks


async def test_pull_requests_in_trouble_and_assigned_issues_are_suggested(git: GitServer) -> None:
    tasks = await of(git).suggested_tasks()
    conflict = ("MERGE_CONFLICTS", 1, "In conflict")
    failure = ("FAILING_CHECKS", 2, "Fails")
    comment = ("UNRESOLVED_COMMENTS", 3, "Commented")
    issue = ("OPEN_ISSUE", 5, "Broken")
    expected = {
        GITHUB: [conflict, failure, comment, issue],
        GITLAB: [conflict, failure, comment, issue],
        BITBUCKET: [failure, comment],
        AZURE_DEVOPS: [conflict],
    }
    assert [(task["task_type"], task["issue_number"], task["title"]) for task in tasks] == expected[
        git.provider
    ]
    assert {(task["git_provider"], task["repo"]) for task in tasks} == {
        (git.provider.value, git.full_name("site"))
    }


# Microagents


async def test_microagents_are_the_texts_of_their_folder(git: GitServer) -> None:
    assert await of(git).microagents(git.full_name("site")) == [
        {"name": "deploy", "path": ".openhands/microagents/deploy.md", "created_at": DATE},
        {"name": "repo", "path": ".openhands/microagents/repo.md", "created_at": DATE},
    ]


async def test_a_repository_without_that_folder_has_no_microagents(git: GitServer) -> None:
    assert await of(git).microagents(git.full_name("docs")) == []


async def test_a_repository_of_microagents_has_them_in_a_folder_at_its_top(git: GitServer) -> None:
    found = await of(git).microagents(git.full_name(".openhands"))
    assert [each["path"] for each in found] == ["microagents/team.md"]


async def test_a_microagent_is_read_with_its_triggers(git: GitServer) -> None:
    path = ".openhands/microagents/deploy.md"
    assert await of(git).microagent_content(git.full_name("site"), path) == {
        "content": "Ask before you deploy.",
        "path": path,
        "triggers": ["deploy", "release"],
        "git_provider": git.provider.value,
    }


async def test_a_microagent_that_is_not_there_is_not_found(git: GitServer) -> None:
    with pytest.raises(GitNotFound):
        await of(git).microagent_content(git.full_name("site"), ".openhands/microagents/gone.md")


NO_MICROAGENTS = [
    "secrets.md",
    ".openhands/microagents/notes.txt",
    ".openhands/microagents/README.md",
    ".openhands/microagents/../../secrets.md",
    "/.openhands/microagents/repo.md",
    "",
]


async def test_only_microagents_are_read(subtests: pytest.Subtests) -> None:
    for provider, path in product(FOUR, NO_MICROAGENTS):
        refused = pytest.raises(InvalidName)
        with subtests.test(path=path, provider=provider), fresh(provider) as git, refused:
            await of(git).microagent_content(git.full_name("site"), path)


FRONT_MATTERS: list[tuple[str, str, list[str]]] = [
    ("Only text.", "Only text.", []),
    ("---\ntriggers: [a, 404]\n---\nText.", "Text.", ["a", "404"]),
    ("---\r\ntriggers:\r\n- a\r\n---\r\nText.\r\n", "Text.", ["a"]),
    ("\ufeff---\ntriggers: one\n---\n", "", ["one"]),
    ("---\nname: x\n---\nText.", "Text.", []),
    ("---\ntriggers:\n---\nText.", "Text.", []),
    ("---\ntriggers: {a: b}\n---\nText.", "Text.", []),
    ("---\ntriggers: [{a: b}, [c], d]\n---\nText.", "Text.", ["d"]),
    ("---\n- a\n---\nText.", "Text.", []),
    ("---\n---\nText.", "Text.", []),
    ("---\n{{{\n---\nText.", "Text.", []),
    ('---\ntriggers: ["\\UFFFFFFFF"]\n---\nText.', "Text.", []),
    ('---\ntriggers: ["\\ud800"]\n---\nText.', "Text.", ["?"]),
    ("---\n!!python/object/apply:os.system [true]\n---\nText.", "Text.", []),
    ("---\ntriggers: !!timestamp x\n---\nText.", "Text.", ["x"]),
    ("---\n" + "[" * 9_000 + "\n---\nText.", "Text.", []),
    ("---\n? [a]\n: b\n---\nText.", "Text.", []),
    ("---\nnever closed", "---\nnever closed", []),
    ("", "", []),
]


def test_front_matter_is_read_where_it_can_be(subtests: pytest.Subtests) -> None:
    for text, content, triggers in FRONT_MATTERS:
        with subtests.test(text=text, content=content):
            assert microagents.read(text) == (content, triggers)


NOT_PUBLIC = [
    *("127.0.0.1:8000", "localhost", "https://localhost", "x.localhost:80", "[::1]:80", "[::]", "0.0.0.0"),
    *("127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.256", "0x", "1.2.3.4.5"),
    *("10.0.0.1", "172.16.0.1", "192.168.1.1:8443", "100.64.0.1", "169.254.169.254", "224.0.0.1"),
    *("[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]"),
    *("[fe80::1]", "[fc00::1]", "[fec0::1]", "[ff02::1]"),
    *("192.0.0.8", "192.0.0.171", "192.88.99.1", "[3fff::1]", "[3fff:fff::1]", "[64:ff9b::c000:8]"),
]


async def test_with_accounts_no_address_is_asked_that_is_not_public(
    accounts: None, public: list[httpx.Request], subtests: pytest.Subtests
) -> None:
    for host in NOT_PUBLIC:
        with subtests.test(host=host):
            with pytest.raises(InvalidName):
                await with_host(GITHUB, host).user()
            assert public == []


async def test_with_accounts_a_public_address_is_asked(
    accounts: None, public: list[httpx.Request], subtests: pytest.Subtests
) -> None:
    for host in ["8.8.8.8", "134744072:8443", "[2001:4860:4860::8888]", "[::ffff:8.8.8.8]"]:
        with subtests.test(host=host):
            public.clear()
            with pytest.raises(GitAuthenticationError):
                await with_host(GITHUB, host).user()
            assert len(public) == 1


def resolved(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name lead to these addresses; to none without any."""

    def getaddrinfo(name: object, port: object, *args: object, **kwargs: object) -> list[object]:
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "nobody knows the name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    ("addresses", "is_asked"),
    [
        (["140.82.112.3"], True),
        (["127.0.0.1"], False),
        (["140.82.112.3", "10.0.0.1"], False),
        (["::ffff:10.0.0.1"], False),
        (["fe80::1%eth0"], False),
    ],
)
async def test_with_accounts_a_name_is_asked_only_where_it_leads_to_public_addresses(
    addresses: list[str],
    is_asked: bool,
    accounts: None,
    public: list[httpx.Request],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved(monkeypatch, *addresses)
    with pytest.raises(GitAuthenticationError if is_asked else InvalidName):
        await with_host(GITHUB, "git.example.com").user()
    assert len(public) == is_asked


async def test_with_accounts_a_host_is_asked_at_the_address_that_was_checked(
    accounts: None, public: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved(monkeypatch, "140.82.112.3")
    with pytest.raises(GitAuthenticationError):
        await with_host(GITHUB, "git.example.com").user()
    [request] = public
    assert (request.url.host, request.headers["host"]) == ("140.82.112.3", "git.example.com")


async def test_with_accounts_a_host_of_which_nothing_is_known_is_not_asked(
    accounts: None, public: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved(monkeypatch)
    with pytest.raises(GitProviderError):
        await with_host(GITHUB, "git.example.com").user()
    assert public == []


async def test_a_proxy_that_cannot_be_used_is_an_error(
    public: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(GitProviderError, match="proxy configured"):
        await with_host(GITHUB, "git.example.com").user()
    assert public == []


async def test_without_accounts_a_provider_may_be_anywhere(
    public: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved(monkeypatch, "10.0.0.1")
    for host in ("git.example.com", "10.0.0.1"):
        with pytest.raises(GitAuthenticationError):
            await with_host(GITHUB, host).user()
    assert len(public) == 2
