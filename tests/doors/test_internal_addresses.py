"""Addresses that users name: which ones no door stores, and what is answered of those that lead inside."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.llm import failures
from sessions_app.agents.llm.faults import ToolFault
from sessions_app.agents.llm.models import Target, Wire
from sessions_app.agents.llm.tools.connections import ToolConnection
from sessions_app.agents.llm.tools.servers import ToolServer, ToolTransport
from sessions_app.agents.llm.transport import client_of
from sessions_app.git_providers.base import InvalidName, ProviderToken, ProviderType
from sessions_app.git_providers.client import GitProviders
from sessions_app.models import AgentSetup, ApiToken, Endpoint, Secret, SecretKind, UserSettings
from sessions_app.outbound.internal import parse_all
from sessions_app.outbound.model_trial import ModelSetup, ask_model
from sessions_app.settings.user_settings import SettingSecret
from sessions_app.webhooks import transport
from sessions_app.webhooks.notifications import DeliveryFailed, Notification, NotificationKind
from tests.doors.test_access import bearer
from tests.support.people.web_browser import Browser, words
from tests.support.servers.model_server import Answer, model_server
from tests.support.wires.v1 import AGENT, START

pytestmark = pytest.mark.one_engine

INTERNAL = [
    "http://127.0.0.1:6379",
    "http://168.63.129.16/metadata",
    "https://printer.local",
    "http://redis:6379",
]
"""Hosts that are internal as they are written; `tests/pure/test_internal_addresses.py` has all spellings."""

SENTENCE = "No public address was found for this host."

Door = Callable[[str], Awaitable[str]]
"""Enter a URL; return the answer's text if it is refused, and nothing if it is taken."""


def refused(answer: httpx.Response) -> str:
    return words(answer) if answer.status_code >= 400 else ""


@pytest.fixture
async def doors(accounts: None, bob: User, rest: httpx.AsyncClient, visitor: Browser) -> dict[str, Door]:
    """Every door at which a user or a member of staff enters an address."""
    headers = bearer(await astore.call(lambda: ApiToken.issue(bob.pk, "laptop")[1]))
    boss = Client()
    await astore.call(lambda: boss.force_login(User.objects.create_superuser("boss")))
    await visitor.log_in(bob)
    admin = "/admin/sessions_app"

    async def posted(path: str, body: object) -> str:
        return refused(await rest.post(path, json=body, headers=headers))

    def page(path: str, field: str, **form: str) -> Door:
        async def enter(url: str) -> str:
            answer = await visitor.send(f"/settings/{path}", {field: url, **form}, page="/settings")
            return refused(answer)

        return enter

    def in_admin(path: str, **form: Callable[[str], Any]) -> Door:
        async def enter(url: str) -> str:
            data = {name: value(url) for name, value in form.items()}
            answer = await astore.call(lambda: boss.post(f"{admin}/{path}/add/", data))
            return "" if answer.status_code == 302 else answer.content.decode()

        return enter

    def of(value: Any) -> Callable[[str], Any]:
        return lambda url: value

    def agent(**members: Any) -> dict[str, Any]:
        return {**START, "agent": {**START["agent"], **members}}

    llm = START["agent"]["llm"]
    return {
        "v0 settings, model": lambda url: posted("/api/settings", {"llm_base_url": url}),
        "v0 settings, tools": lambda url: posted("/api/settings", {"mcp_config": {"sse_servers": [url]}}),
        "v0 start, tools": lambda url: posted("/api/conversations", {"mcp_config": {"shttp_servers": [url]}}),
        "v0 git": lambda url: posted(
            "/api/add-git-providers",
            {"provider_tokens": {"gitlab": {"token": "t", "host": url.rstrip("/.")}}},
        ),
        "v1 start, model": lambda url: posted(AGENT, agent(llm={**llm, "base_url": url})),
        "v1 start, summaries": lambda url: posted(
            AGENT, agent(condenser={"kind": "C", "llm": {"base_url": url}})
        ),
        "v1 start, tools": lambda url: posted(AGENT, agent(mcp_config={"mcpServers": {"a": {"url": url}}})),
        "page, model": page("model", "base_url"),
        "page, tools": page("tools", "url", kind="shttp_servers"),
        "admin, settings": in_admin("usersettings", user=of(str(bob.pk)), llm_base_url=lambda url: url),
        "admin, tools": in_admin(
            "secret",
            user=of(str(bob.pk)),
            kind=of(SecretKind.SETTING.value),
            name=of(SettingSecret.MCP_CONFIG.value),
            clear=lambda url: f'{{"sse_servers": [{{"url": "{url}"}}]}}',
        ),
        "admin, git": in_admin(
            "secret",
            user=of(str(bob.pk)),
            kind=of(SecretKind.PROVIDER_TOKEN.value),
            name=of("github"),
            clear=of("a-token"),
            host=lambda url: url.rstrip("/."),
        ),
        "admin, webhook": in_admin(
            "endpoint",
            name=of("watcher"),
            base_url=lambda url: url.replace("http:", "https:"),
            event_buffer_size=of(5),
            flush_delay_s=of(30),
            timeout_s=of(30),
        ),
    }


def nothing_is_stored() -> bool:
    settings = UserSettings.objects.exclude(llm_base_url=None)
    rows = (settings, Secret.objects.all(), Endpoint.objects.all(), AgentSetup.objects.all())
    return not any(each.exists() for each in rows)


async def test_no_door_stores_an_address_that_is_internal_as_it_is_written(
    doors: dict[str, Door], subtests: pytest.Subtests
) -> None:
    for name, door in doors.items():
        for url in INTERNAL:
            with subtests.test(door=name, url=url):
                answer = await door(url)
                assert await astore.call(nothing_is_stored)
                assert SENTENCE in answer


async def test_every_door_takes_a_public_address_and_what_the_operator_lists(
    doors: dict[str, Door], configured: Callable[..., None], subtests: pytest.Subtests
) -> None:
    configured(internal_addresses=parse_all(["models", "10.1.0.0/16:8443"]))
    asks_at_once = doors.pop("v0 git")
    for url in (
        "https://models.example.org/v1",
        "https://8.8.8.8",
        "http://models:1/v1",
        "https://10.1.2.3:8443",
    ):
        for name, door in doors.items():
            with subtests.test(door=name, url=url):
                host_only = url.removesuffix("/v1") if name == "admin, git" else url
                assert await door(host_only) == ""
                await astore.call(Secret.objects.all().delete)
                await astore.call(UserSettings.objects.all().delete)
    assert SENTENCE in await asks_at_once("https://10.1.2.3")


async def test_what_the_operator_lists_may_be_asked_at_its_port_alone(
    accounts: None, configured: Callable[..., None], subtests: pytest.Subtests
) -> None:
    with model_server(lambda asked: Answer(body={"data": [{"id": "m"}], "choices": []})) as (base_url, asked):
        port = int(base_url.rpartition(":")[2].partition("/")[0])
        rows = [
            ([], False),
            ([f"127.0.0.1:{port}"], True),
            (["127.0.0.0/8"], True),
            (["localhost"], False),
            ([f"127.0.0.1:{port + 1}", "10.0.0.0/8"], False),
        ]
        for entries, is_asked in rows:
            with subtests.test(entries=entries):
                configured(internal_addresses=parse_all(entries))
                asked.clear()
                finding = await ask_model(ModelSetup(model="x/m", base_url=base_url, key="k"))
                assert (bool(asked), SENTENCE in finding.text) == (is_asked, not is_asked), finding


# Names, which are looked up when they are asked


async def of_trial(url: str) -> str:
    return (await ask_model(ModelSetup(model="x/m", base_url=url, key="k"))).text


async def of_turn(url: str) -> str:
    target = Target(wire=Wire.OPENAI, name="m", base_url=url, key="k", is_operators=False)
    async with client_of(target) as client:
        with pytest.raises(Exception) as failure:  # noqa: PT011 - what it means is looked at
            await client.get(url)
    fault = failures.fault_of(failure.value, target)
    return f"{fault} {fault.code} {fault.is_passing}"


async def of_git(url: str) -> str:
    host = url.removeprefix("https://").partition("/")[0]
    token = {ProviderType.GITHUB: ProviderToken(token="t", host=host)}
    with pytest.raises(InvalidName) as refusal:
        await GitProviders(token).user()
    return str(refusal.value)


async def of_tools(url: str) -> str:
    connection = ToolConnection(ToolServer(name="t", way=ToolTransport.STREAMABLE, url=url))
    with pytest.raises(ToolFault) as fault:
        await connection.tools()
    await connection.close()
    return str(fault.value)


async def of_webhook(url: str) -> str:
    webhook = transport.Webhook(await astore.call(transport.create, url))
    said = Notification(
        kind=NotificationKind.STATUS, conversation=ConversationRef(1, "talk", 1, "V1"), information={}
    )
    with pytest.raises(DeliveryFailed) as failure:
        await webhook.deliver(said)
    return str(failure.value)


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
async def test_a_name_that_leads_inside_is_answered_like_one_that_does_not_exist(
    accounts: None, database: None, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests, proxy: str
) -> None:
    known = {
        b"inside.example.org": "10.0.0.7",
        b"host.example.org": "168.63.129.16",
        b"127.0.0.1": "127.0.0.1",
    }

    def getaddrinfo(name: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        asked = name if isinstance(name, bytes) else str(name).encode()
        if asked not in known:
            raise socket.gaierror(socket.EAI_NONAME, "the name is unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[asked], port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    for ask in (of_trial, of_turn, of_git, of_tools, of_webhook):
        with subtests.test(asked=ask.__name__):
            hosts_named = ("unknown", "inside", "host")
            answers = {await ask(f"https://{host}.example.org/v1") for host in hosts_named}
            assert len(answers) == 1
            assert "o public address was found for " in answers.pop()
