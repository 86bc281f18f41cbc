"""What a person sets by the page: each thing by itself, what is wrong beside its field, and no key shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.events import ConversationRef
from conversations.redaction.masking import MASK
from conversations.store import changes, creation
from convserver.api.openhands.tool_servers import SseServer
from convserver.web.settings_pages import forms, stored_servers
from sessions_app import astore
from sessions_app.models import ApiToken, Grant, Scope, Secret, SecretKind, UserSettings
from sessions_app.settings import user_settings
from sessions_app.settings.placeholder_keys import NOT_MASKED
from sessions_app.settings.user_settings import SettingSecret
from tests.conftest import on_postgresql
from tests.support.data.threads import in_threads
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

PAGE = "/settings"
KEY = "sk-1234567890"
VALUE = "the value of a secret"
SERVER = "https://tools.example.org/mcp"


async def send(visitor: Browser, path: str, **form: str) -> httpx.Response:
    """Send a form of the page, and return the page that comes of it."""
    answer = await visitor.send(f"{PAGE}/{path}", form, page=PAGE)
    if answer.status_code != 302:
        return answer
    assert answer.headers["location"].startswith(f"{PAGE}#")
    return await visitor.get(PAGE)


async def said(visitor: Browser, path: str, **form: str) -> str:
    """Send a form, and return what the page says of it, and in which role."""
    answer = await send(visitor, path, **form)
    found = re.search(r'<p class="said[^"]*" role="(\w+)"><bdi>(.*?)</bdi>', answer.text)
    assert found is not None
    return f"{found[1]}: {found[2]}"


async def beside(visitor: Browser, path: str, **form: str) -> dict[str, str]:
    """Send a form that is refused, and return what stands beside which field."""
    answer = await send(visitor, path, **form)
    assert answer.status_code == 400
    return dict(re.findall(r'<p class="error" id="(.*?)_error">(.*?)</p>', answer.text))


async def stored(user: User, name: SettingSecret = SettingSecret.LLM_API_KEY) -> str | None:
    return await astore.call(user_settings.secret_value, user.pk, SecretKind.SETTING, name=name)


async def settings_of(user: User) -> UserSettings:
    found = await astore.call(user_settings.settings_of, user.pk)
    assert found is not None
    return found


async def servers_of(user: User) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(await stored(user, SettingSecret.MCP_CONFIG) or "{}")
    return config


async def secret(user: User, name: str) -> str | None:
    return await astore.call(user_settings.secret_value, user.pk, SecretKind.CUSTOM, name=name)


# The model


async def test_a_model_is_stored_and_said_once(visitor: Browser, alice: User) -> None:
    words_said = await said(
        visitor, "model", model="openai/gpt-5", base_url="http://localhost:1/v1/", key=KEY
    )
    assert words_said == "status: Saved."
    found = await settings_of(alice)
    assert (found.llm_model, found.llm_base_url) == ("openai/gpt-5", "http://localhost:1/v1")
    assert await stored(alice) == KEY
    assert "Saved." not in (await visitor.get(PAGE)).text


@pytest.mark.parametrize(("agent", "asks"), [("faulty.ModelAgent", True), ("faulty.BlankAgent", False)])
async def test_where_no_agent_asks_a_model_the_page_says_so(
    configured: Callable[..., None], visitor: Browser, agent: str, asks: bool
) -> None:
    configured(agent=f"tests.support.data.{agent}", agents=("demo",))
    assert ("The agent on this server needs no model" in words(await visitor.get(PAGE))) != asks


async def test_a_short_key_is_stored_and_said_not_to_be_masked(visitor: Browser, alice: User) -> None:
    assert await said(visitor, "model", model="openai/gpt-5", key="sk-1") == f"status: Saved. {NOT_MASKED}"
    assert await stored(alice) == "sk-1"
    assert await said(visitor, "model", model="openai/gpt-5", key="EMPTY") == "status: Saved."


async def test_a_stored_key_is_asked_for_again_when_the_base_url_names_another_server(
    visitor: Browser, alice: User
) -> None:
    await send(visitor, "model", model="m", base_url="http://localhost:1/v1", key=KEY)
    errors = await beside(visitor, "model", model="m", base_url="http://localhost:2/v1")
    asked = "The base URL names another server. Enter the API key for it, or remove the key."
    assert errors == {"model-key": asked}
    assert (await settings_of(alice)).llm_base_url == "http://localhost:1/v1"
    await send(visitor, "model", model="m", base_url="http://localhost:2/v1", key="another key")
    found = await settings_of(alice)
    assert (found.llm_base_url, await stored(alice)) == ("http://localhost:2/v1", "another key")


async def test_a_token_is_created_with_what_it_can_do_and_until_when(visitor: Browser, alice: User) -> None:
    await send(visitor, "tokens", label="ci", rights="read run", days="30", id="one")
    (token,) = await astore.call(lambda: list(ApiToken.objects.all()))
    assert token.scopes == "read run"
    assert token.expires_at is not None
    assert timedelta(days=29) < token.expires_at - timezone.now() <= timedelta(days=30)
    shown = words(await visitor.get(PAGE))
    assert f"expires {token.expires_at:%-d %b %Y}" in shown
    assert "Access: Read and talk to the agent" in shown


async def test_a_token_is_created_for_one_conversation_and_says_so(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await astore.call(changes.retitle, conversation, "The build")
    assert ">The build</option>" in (await visitor.get(PAGE)).text
    await send(visitor, "tokens", label="ci", rights="read", conversation="talk", id="one")
    (token,) = await astore.call(lambda: list(ApiToken.objects.all()))
    assert token.conversation_id == conversation.pk
    assert "Access: Read only, only in The build" in words(await visitor.get(PAGE))


async def test_the_menu_of_a_conversation_leads_to_a_token_for_it(
    visitor: Browser, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "CONVERSATIONS_OFFERED", 0)
    assert 'href="/settings?conversation=talk#tokens"' in (await visitor.get("/c/talk")).text
    assert '<option value="talk" selected>' in (await visitor.get(f"{PAGE}?conversation=talk")).text
    assert 'value="talk"' not in (await visitor.get(PAGE)).text


@pytest.mark.parametrize("other", ["nowhere", "of-bob"])
async def test_no_token_is_created_for_a_conversation_that_the_user_may_not_read(
    visitor: Browser, bob: User, other: str
) -> None:
    await astore.call(creation.create, bob, conversation_id="of-bob")
    assert list(await beside(visitor, "tokens", label="ci", conversation=other, id="one")) == [
        "token-conversation"
    ]
    assert not await astore.call(ApiToken.objects.exists)


async def test_a_set_of_scopes_that_is_not_offered_is_named_scope_by_scope(alice: User) -> None:
    token, _ = await astore.call(ApiToken.issue, alice.pk, "ci", Grant(scopes=[Scope.READ, Scope.WRITE]))
    assert token.rights == "Read and write"


async def test_a_token_without_choices_can_do_everything_for_ever(visitor: Browser, alice: User) -> None:
    await send(visitor, "tokens", label="ci", id="one")
    (token,) = await astore.call(lambda: list(ApiToken.objects.all()))
    assert (token.is_whole, token.expires_at) == (True, None)


async def test_a_key_is_shown_only_as_set(visitor: Browser, alice: User) -> None:
    assert "Not set" in words(await visitor.get(PAGE))
    page = await send(visitor, "model", key=KEY)
    assert (KEY in page.text, "API key Set" in words(page)) == (False, True)


async def test_an_empty_key_keeps_the_one_that_is_stored(visitor: Browser, alice: User) -> None:
    await send(visitor, "model", key=KEY)
    await send(visitor, "model", model="openai/gpt-5", key="")
    assert await stored(alice) == KEY


async def test_a_key_is_forgotten_when_that_is_asked_for(visitor: Browser, alice: User) -> None:
    await send(visitor, "model", key=KEY)
    await send(visitor, "model", forgets_key="on")
    assert await stored(alice) is None


OPENED = {"initial-model": "old", "initial-base_url": ""}
"""What the page showed when it was opened."""


async def test_what_was_changed_elsewhere_and_not_in_the_form_stays(visitor: Browser, alice: User) -> None:
    values = {"llm_model": "new", "llm_base_url": "http://localhost:1/v1"}
    await astore.call(user_settings.change_settings, alice.pk, values, secrets={})
    await send(visitor, "model", **OPENED, model="old", base_url="", key=KEY)
    found = await settings_of(alice)
    assert (found.llm_model, found.llm_base_url, await stored(alice)) == (*values.values(), KEY)


async def test_what_was_changed_elsewhere_and_in_the_form_is_told_and_replaced_the_second_time(
    visitor: Browser, alice: User
) -> None:
    await astore.call(user_settings.change_settings, alice.pk, {"llm_model": "new"}, secrets={})
    page = await send(visitor, "model", **OPENED, model="mine", base_url="")
    assert "This was changed to “new” elsewhere since you opened the page." in words(page)
    assert (await settings_of(alice)).llm_model == "new"
    assert 'name="initial-model" value="new"' in page.text
    await send(visitor, "model", **{**OPENED, "initial-model": "new"}, model="mine", base_url="")
    assert (await settings_of(alice)).llm_model == "mine"


async def test_a_model_wipes_nothing_else(visitor: Browser, alice: User) -> None:
    values = {"language": "de", "max_iterations": 7}
    secrets = {SettingSecret.SEARCH_API_KEY: "tv-1", SettingSecret.MCP_CONFIG: "{}"}
    await astore.call(user_settings.change_settings, alice.pk, values, secrets=secrets)
    await send(visitor, "model", model="openai/gpt-5", key=KEY)
    found = await settings_of(alice)
    assert (found.language, found.max_iterations) == ("de", 7)
    assert (await stored(alice, SettingSecret.SEARCH_API_KEY)) == "tv-1"
    assert (await stored(alice, SettingSecret.MCP_CONFIG)) == "{}"


NO_BASE_URLS: list[tuple[str, str]] = [
    ("api.example.org", "starts with https://"),
    ("ftp://api.example.org", "starts with https://"),
    ("https://", "starts with https://"),
    ("https://[", "https://"),
    ("https://a:b@api.example.org/v1", "Remove the password"),
    ("https://api.example.org/v1?key=1", "Remove the password"),
    ("https://api.example.org/v1/chat/completions", "Remove the path"),
    ("https://a\0b", "Null"),
]


async def test_a_base_url_that_is_none_is_told_beside_its_field_and_nothing_is_stored(
    visitor: Browser, alice: User, subtests: pytest.Subtests
) -> None:
    for base_url, reason in NO_BASE_URLS:
        with subtests.test(base_url=base_url, reason=reason):
            errors = await beside(visitor, "model", model="openai/gpt-5", base_url=base_url, key=KEY)
            assert (list(errors), reason in errors["model-base_url"]) == (["model-base_url"], True)
            assert await astore.call(user_settings.settings_of, alice.pk) is None


async def test_what_was_typed_is_still_there_when_it_is_refused_but_for_the_key(visitor: Browser) -> None:
    page = await send(visitor, "model", model="my model", base_url="nowhere", key=KEY)
    assert ('value="my model"' in page.text, 'value="nowhere"' in page.text, KEY in page.text) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:8000/v1", "http://[::1]/v1", "http://10.0.0.8", "http://0x7f.1"]
)
async def test_with_accounts_a_model_must_be_at_a_public_address(
    accounts: None, visitor: Browser, bob: User, base_url: str
) -> None:
    await visitor.log_in(bob)
    errors = await beside(visitor, "model", base_url=base_url)
    assert "public address" in errors["model-base_url"]


async def test_a_key_that_was_typed_into_a_refused_form_is_asked_for_again(visitor: Browser) -> None:
    lost = "The key was not saved. Enter it again."
    assert lost in words(await send(visitor, "model", base_url="nowhere", key=KEY))
    assert lost not in words(await send(visitor, "model", base_url="nowhere"))
    assert lost not in words(await send(visitor, "model", model="m", key=KEY))


async def test_with_accounts_the_example_of_a_base_url_is_a_public_address(
    accounts: None, visitor: Browser, bob: User
) -> None:
    await visitor.log_in(bob)
    page = words(await visitor.get(PAGE))
    assert ("https://models.example.org/v1" in page, "localhost" in page) == (True, False)


async def test_without_accounts_the_example_of_a_base_url_is_on_this_machine(visitor: Browser) -> None:
    assert "http://localhost:11434/v1" in words(await visitor.get(PAGE))


async def test_what_came_of_a_trial_is_said_after_saving(visitor: Browser, alice: User) -> None:
    words_said = await said(visitor, "model", base_url="http://127.0.0.1:1/v1", model="m", do="test")
    assert words_said.startswith("alert: Saved. Connection refused")
    assert (await settings_of(alice)).llm_model == "m"


# Tool servers


async def test_approval_is_asked_for_where_that_is_chosen(visitor: Browser, alice: User) -> None:
    assert "Tool calls wait" in await said(visitor, "approval", asks="on")
    assert (await settings_of(alice)).confirmation_mode is True
    assert re.search(r'name="asks"[^>]* checked', (await visitor.get("/settings")).text)
    assert "run without approval" in await said(visitor, "approval")
    assert (await settings_of(alice)).confirmation_mode is False


async def test_a_tool_server_is_added_by_its_address(visitor: Browser, alice: User) -> None:
    assert (
        await said(visitor, "tools", url=SERVER, kind="shttp_servers", api_key=KEY)
        == "status: Tool server added."
    )
    assert (await servers_of(alice))["shttp_servers"] == [{"url": SERVER, "api_key": KEY, "timeout": 60}]
    page = await visitor.get(PAGE)
    assert (SERVER in page.text, "Key set" in page.text, KEY in page.text) == (True, True, False)


async def test_a_program_is_added_with_its_environment(visitor: Browser, alice: User) -> None:
    environment = "TOKEN=abcdefghijk\r\nMODE=a=b"
    await said(visitor, "tools", label="files", command="npx", args="-y 'a server' /srv", env=environment)
    [program] = (await servers_of(alice))["stdio_servers"]
    assert program == {
        "name": "files",
        "command": "npx",
        "args": ["-y", "a server", "/srv"],
        "env": {"TOKEN": "abcdefghijk", "MODE": "a=b"},
    }
    page = await visitor.get(PAGE)
    assert ("TOKEN, MODE" in page.text, "abcdefghijk" in page.text) == (True, False)


async def test_adding_and_removing_leaves_the_others(visitor: Browser, alice: User) -> None:
    for url in (SERVER, f"{SERVER}/2", f"{SERVER}/3"):
        await said(visitor, "tools", url=url, kind="sse_servers")
    listed = await astore.call(stored_servers.servers_of, alice.pk)
    assert listed is not None
    assert await said(visitor, "tools/remove", server=listed[1].reference) == "status: Tool server removed."
    assert [each["url"] for each in (await servers_of(alice))["sse_servers"]] == [SERVER, f"{SERVER}/3"]


async def test_removing_what_is_gone_removes_nothing(visitor: Browser, alice: User) -> None:
    await said(visitor, "tools", url=SERVER, kind="sse_servers")
    await said(visitor, "tools/remove", server="gone")
    assert len((await servers_of(alice))["sse_servers"]) == 1


async def test_without_any_tool_server_nothing_is_stored(visitor: Browser, alice: User) -> None:
    await said(visitor, "tools", url=SERVER, kind="sse_servers")
    [listed] = await astore.call(stored_servers.servers_of, alice.pk) or []
    await said(visitor, "tools/remove", server=listed.reference)
    assert await stored(alice, SettingSecret.MCP_CONFIG) is None


WRONG_SERVERS: list[tuple[dict[str, str], str]] = [
    ({"url": "", "kind": "sse_servers"}, "server-url"),
    ({"url": "tools.example.org", "kind": "sse_servers"}, "server-url"),
    ({"url": SERVER, "kind": "carrier pigeon"}, "server-kind"),
    ({"label": "", "command": "npx"}, "command-label"),
    ({"label": "my files", "command": "npx"}, "command-label"),
    ({"label": "files", "command": "npx -y"}, "command-command"),
    ({"label": "files", "command": "npx", "args": "'open"}, "command-args"),
    ({"label": "files", "command": "npx", "env": "TOKEN"}, "command-env"),
]


async def test_what_is_wrong_with_a_tool_server_stands_beside_its_field(
    visitor: Browser, subtests: pytest.Subtests
) -> None:
    for form, field in WRONG_SERVERS:
        with subtests.test(form=form, field=field):
            assert list(await beside(visitor, "tools", **form)) == [field]


PRIVATE = [
    "http://127.0.0.1:8000/mcp",
    "ws://localhost/mcp",
    "https://10.0.0.7/mcp",
    "http://[::1]/mcp",
    "http://0x7f000001/mcp",
    "http://169.254.169.254/latest",
]
NOT_PUBLIC = "No public address was found for this host."


@pytest.mark.parametrize("url", PRIVATE)
async def test_with_accounts_a_tool_server_must_be_at_a_public_address(
    accounts: None, visitor: Browser, bob: User, url: str
) -> None:
    await visitor.log_in(bob)
    errors = await beside(visitor, "tools", url=url, kind="shttp_servers")
    assert errors["server-url"].startswith(NOT_PUBLIC)
    assert await servers_of(bob) == {}
    assert "Tool server added." in words(await send(visitor, "tools", url=SERVER, kind="shttp_servers"))


@pytest.mark.parametrize("kind", ["sse_servers", "shttp_servers"])
async def test_with_accounts_the_v0_door_refuses_such_a_tool_server_as_well(
    accounts: None, rest: httpx.AsyncClient, bob: User, kind: str
) -> None:
    _, token = await astore.call(ApiToken.issue, bob.pk, "laptop")
    for url, status in (*((url, 422) for url in PRIVATE), (SERVER, 200)):
        body = {"mcp_config": {kind: [{"url": url}]}}
        answer = await rest.post("/api/settings", json=body, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == status, (url, answer.text)
    assert (
        NOT_PUBLIC
        in (
            await rest.post(
                "/api/settings",
                json={"mcp_config": {kind: [{"url": PRIVATE[0]}]}},
                headers={"authorization": f"Bearer {token}"},
            )
        ).text
    )


async def test_without_accounts_a_tool_server_may_be_on_this_machine(visitor: Browser, alice: User) -> None:
    await send(visitor, "tools", url=PRIVATE[0], kind="shttp_servers")
    assert await servers_of(alice) != {}


async def test_tool_servers_that_cannot_be_read_are_kept_until_all_are_removed(
    visitor: Browser, alice: User
) -> None:
    await astore.call(user_settings.set_secret, alice.pk, SettingSecret.MCP_CONFIG, "[broken")
    assert "can't be read" in words(await visitor.get(PAGE))
    refused = await send(visitor, "tools", url=SERVER, kind="sse_servers")
    assert (refused.status_code, await stored(alice, SettingSecret.MCP_CONFIG)) == (400, "[broken")
    assert await said(visitor, "tools/remove", do="all") == "status: All tool servers removed."


@on_postgresql
@pytest.mark.needs_engine
def test_of_two_tool_servers_added_at_once_none_is_lost(alice: User) -> None:
    def add(number: int) -> None:
        server = SseServer(url=f"{SERVER}/{number}")
        stored_servers.add(alice.pk, server)

    in_threads(6, add)
    listed = stored_servers.servers_of(alice.pk)
    assert listed is not None
    assert {each.title for each in listed} == {f"{SERVER}/{number}" for number in range(6)}


# Secrets


async def test_a_secret_is_added_and_listed_without_its_value(visitor: Browser, alice: User) -> None:
    page = await send(visitor, "secrets", label="DEPLOY_KEY", value=VALUE, description="Opens staging")
    assert ("DEPLOY_KEY" in page.text, "Opens staging" in page.text, VALUE in page.text) == (
        True,
        True,
        False,
    )
    assert (
        await astore.call(user_settings.secret_value, alice.pk, SecretKind.CUSTOM, name="DEPLOY_KEY") == VALUE
    )


async def test_a_secret_is_replaced_and_keeps_its_description(visitor: Browser, alice: User) -> None:
    await send(visitor, "secrets", label="KEY", value=VALUE, description="Opens staging")
    assert await said(visitor, "secrets/change", name="KEY", value="another") == "status: KEY updated."
    assert await secret(alice, "KEY") == "another"
    assert await astore.call(user_settings.custom_secrets, alice.pk) == [("KEY", "Opens staging")]


async def test_a_secret_is_deleted(visitor: Browser, alice: User) -> None:
    await send(visitor, "secrets", label="KEY", value=VALUE)
    assert await said(visitor, "secrets/change", name="KEY", do="delete") == "status: KEY deleted."
    assert await astore.call(user_settings.custom_secrets, alice.pk) == []


WRONG_SECRETS: list[tuple[dict[str, str], str]] = [
    ({"label": "", "value": VALUE}, "secret-label"),
    ({"label": "k" * 256, "value": VALUE}, "secret-label"),
    ({"label": "TAKEN", "value": VALUE}, "secret-label"),
    ({"label": "KEY", "value": " "}, "secret-value"),
    ({"label": "KEY", "value": "\r\n"}, "secret-value"),
    ({"label": "KEY", "value": "v" * 16_385}, "secret-value"),
]


async def test_what_is_wrong_with_a_secret_stands_beside_its_field_without_the_value(
    visitor: Browser, alice: User, subtests: pytest.Subtests
) -> None:
    await send(visitor, "secrets", label="TAKEN", value="first")
    for form, field in WRONG_SECRETS:
        with subtests.test(form=form, field=field):
            assert list(await beside(visitor, "secrets", **form)) == [field]
            assert VALUE not in (await send(visitor, "secrets", **form)).text


async def test_a_secret_that_is_not_there_cannot_be_changed(
    visitor: Browser, alice: User, subtests: pytest.Subtests
) -> None:
    for form in [{"name": "none", "value": "v"}, {"name": "none", "do": "delete"}, {"name": "a\0b"}]:
        with subtests.test(form=form):
            assert (await said(visitor, "secrets/change", **form)).startswith("alert: ")
            assert not await astore.call(Secret.objects.exists)


PEM = "-----BEGIN KEY-----\nMIIEvQ\n-----END KEY-----\n"
PASTED = PEM.replace("\n", "\r\n")
"""As browsers send what was pasted into several lines."""


async def test_a_key_of_several_lines_is_stored_as_it_was_pasted(visitor: Browser, alice: User) -> None:
    await send(visitor, "secrets", label="KEY", value=PASTED)
    assert await secret(alice, "KEY") == PEM


async def test_a_new_key_of_several_lines_is_stored_as_it_was_pasted(visitor: Browser, alice: User) -> None:
    await send(visitor, "secrets", label="KEY", value=VALUE)
    await send(visitor, "secrets/change", name="KEY", value=PASTED)
    assert await secret(alice, "KEY") == PEM


async def test_line_ends_count_as_one_character_of_a_secret_each(visitor: Browser, alice: User) -> None:
    longest = "x\r\n" * 8192
    await send(visitor, "secrets", label="KEY", value=longest)
    await send(visitor, "secrets/change", name="KEY", value=longest)
    assert await secret(alice, "KEY") == "x\n" * 8192


async def test_a_key_that_was_pasted_is_hidden_in_events(
    visitor: Browser, rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    await send(visitor, "secrets", label="KEY", value=PASTED)
    shown = {"type": "message", "text": f"it is {PEM}."}
    await rest.post("/api/native/conversations/talk/events", json=shown)
    log = await rest.get("/api/native/conversations/talk/events")
    assert (MASK in log.text, "MIIEvQ" in log.text) == (True, False)


async def test_a_blank_value_leaves_a_secret_as_it_is(visitor: Browser, alice: User) -> None:
    await send(visitor, "secrets", label="KEY", value=VALUE)
    assert (await said(visitor, "secrets/change", name="KEY", value=" ")).startswith(
        "alert: KEY was not changed"
    )
    assert await secret(alice, "KEY") == VALUE


# Tokens


async def test_a_token_is_shown_once_and_opens_the_doors(
    accounts: None, visitor: Browser, bob: User, rest: httpx.AsyncClient
) -> None:
    await visitor.log_in(bob)
    page = await send(visitor, "tokens", label="laptop")
    [text] = re.findall(r"<code>(cs_[^<]+)</code>", page.text)
    assert "no-store" in page.headers["cache-control"]
    answer = await rest.get("/api/native/conversations", headers={"authorization": f"Bearer {text}"})
    assert answer.status_code == 200
    later = await visitor.get(PAGE)
    assert (text in later.text, "laptop" in later.text, "last used" in later.text) == (False, True, True)


async def test_a_form_that_is_sent_again_makes_no_second_token(visitor: Browser, alice: User) -> None:
    [form_id] = re.findall(r'name="id" value="([^"]+)"', (await visitor.get(PAGE)).text)
    first = await send(visitor, "tokens", label="laptop", id=form_id)
    assert (await said(visitor, "tokens", label="laptop", id=form_id)).startswith(
        "alert: This token was already created"
    )
    [next_id] = re.findall(r'name="id" value="([^"]+)"', first.text)
    await send(visitor, "tokens", label="desktop", id=next_id)
    names = await astore.call(lambda: sorted(ApiToken.objects.values_list("name", flat=True)))
    assert names == ["desktop", "laptop"]


async def test_a_second_token_of_the_same_name_is_refused_with_a_sentence(
    visitor: Browser, alice: User
) -> None:
    await send(visitor, "tokens", label="laptop", id="c" * 32)
    page = (await send(visitor, "tokens", label="laptop", id="d" * 32)).text
    assert "There is a token named “laptop” already. Choose another name, or revoke that token." in page
    assert await astore.call(ApiToken.objects.count) == 1


async def test_what_a_browser_keeps_of_a_new_token_says_nothing_of_it(visitor: Browser, alice: User) -> None:
    page = await send(visitor, "tokens", label="laptop", id="c" * 32)
    [text] = re.findall(r"<code>(cs_[^<]+)</code>", page.text)
    kept = page.headers["set-cookie"]
    assert ("tokens-made=" in kept, "HttpOnly" in kept, text in kept) == (True, True, False)


async def test_a_token_is_revoked_and_leaves_the_list(visitor: Browser, alice: User) -> None:
    row, _ = await astore.call(ApiToken.issue, alice.pk, "laptop")
    assert await said(visitor, "tokens/revoke", token=row.public_id) == "status: laptop is revoked."
    assert row.prefix not in (await visitor.get(PAGE)).text
    assert not await astore.call(ApiToken.objects.valid().exists)


async def test_a_token_that_is_not_there_cannot_be_revoked(
    visitor: Browser, subtests: pytest.Subtests
) -> None:
    for token in ["", "x", "-1", "9" * 30, "999999"]:
        with subtests.test(token=token):
            assert (await said(visitor, "tokens/revoke", token=token)).startswith("alert: ")


async def test_a_strangers_things_are_neither_shown_nor_changed(
    accounts: None, visitor: Browser, alice: User, bob: User
) -> None:
    row, _ = await astore.call(ApiToken.issue, alice.pk, "laptop of alice")
    await astore.call(user_settings.create_custom_secret, alice.pk, "KEY_OF_ALICE", VALUE, description="")
    await visitor.log_in(bob)
    page = await visitor.get(PAGE)
    assert ("laptop of alice" in page.text, "KEY_OF_ALICE" in page.text) == (False, False)
    assert (await said(visitor, "tokens/revoke", token=row.public_id)).startswith("alert: ")
    assert (await said(visitor, "secrets/change", name="KEY_OF_ALICE", do="delete")).startswith("alert: ")


# Appearance


@pytest.mark.parametrize("path", ["/", "/settings", "/deleted", "/nowhere"])
async def test_a_theme_is_kept_by_the_browser_and_holds_on_every_page(visitor: Browser, path: str) -> None:
    assert "data-theme=" not in (await visitor.get(path)).text.partition("<head>")[0]
    assert await said(visitor, "theme", theme="dark") == "status: Saved."
    assert 'data-theme="dark"' in (await visitor.get(path)).text.partition("<head>")[0]


async def test_any_other_theme_is_the_systems(visitor: Browser) -> None:
    await send(visitor, "theme", theme="dark")
    page = await send(visitor, "theme", theme='"><script>')
    assert "data-theme=" not in page.text.partition("<head>")[0]


async def test_a_script_that_chooses_a_theme_leaves_no_word_for_a_later_page(visitor: Browser) -> None:
    answer = await visitor.send("/settings/theme", {"theme": "dark"}, headers={"accept": "application/json"})
    assert (answer.status_code, "Saved." in (await visitor.get(PAGE)).text) == (204, False)


# All of it


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}"])
async def test_hostile_names_show_only_themselves(visitor: Browser, alice: User, text: str) -> None:
    await astore.call(ApiToken.issue, alice.pk, text)
    for path, form in (
        ("secrets", {"label": text, "value": "v", "description": text}),
        ("model", {"model": text}),
        ("tools", {"label": "x", "command": text.replace(" ", "")}),
        ("tools", {"url": f"https://x/{text}", "kind": "sse_servers"}),
    ):
        await send(visitor, path, **form)
    page = (await visitor.get(PAGE)).text
    assert ("<script>alert" in page, "<img src=x" in page, "49" in words(await visitor.get(PAGE))) == (
        False,
    ) * 3


async def test_with_a_frontend_the_forms_stay_under_ui(
    visitor: Browser, settings: Any, configured: Callable[..., None]
) -> None:
    settings.ROOT_URLCONF = "convserver.web.frontend_urls"
    page = (await visitor.get("/ui/settings")).text
    actions = set(re.findall(r'action="([^"]+)"', page))
    assert actions
    assert all(action.startswith("/ui/") for action in actions)
    answer = await visitor.send("/ui/settings/model", {"model": "m"})
    assert answer.headers["location"] == "/ui/settings#model"
