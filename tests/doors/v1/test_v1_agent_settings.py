"""Settings, secrets and profiles of the agent face: what is stored, what is shown, and to whom."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.llm.tools import servers
from sessions_app.identity import conversation_keys
from sessions_app.models import AgentSetup, ApiToken, DocumentKind, Grant, Scope, UserDocument
from sessions_app.settings import model_providers, named_servers, setup_keys, user_documents
from sessions_app.settings.placeholder_keys import MASKED_FROM, NOT_MASKED
from tests.doors.v1.test_v1_app_face import bearer
from tests.support.servers.tool_server import tool_server
from tests.support.wires.v1 import AGENT, START, started

API = "/agent/api"
SETTINGS = f"{API}/settings"
MASKED = "**********"
LLM = {"model": "openai/gpt-x", "api_key": "sk-0123456789", "base_url": "https://models.example.org/v1"}


async def changed(rest: httpx.AsyncClient, **diffs: Any) -> Any:
    """Return the settings after a change."""
    answer = await rest.patch(SETTINGS, json=diffs)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_both_wires_read_and_write_the_same_settings(rest: httpx.AsyncClient) -> None:
    await changed(
        rest,
        agent_settings_diff={"llm": LLM, "condenser": {"enabled": False}},
        conversation_settings_diff={"confirmation_mode": True, "max_iterations": 40},
        misc_settings_diff={"app_preferences": {"language": "no"}},
    )
    first = (await rest.get("/api/settings")).json()
    assert (first["llm_model"], first["llm_base_url"], first["llm_api_key_set"]) == (
        LLM["model"],
        LLM["base_url"],
        True,
    )
    assert (first["enable_default_condenser"], first["confirmation_mode"]) == (False, True)
    assert (first["max_iterations"], first["language"]) == (40, "no")
    await rest.post("/api/settings", json={"llm_model": "openai/other", "language": "de"})
    second = (await rest.get(SETTINGS)).json()
    assert second["agent_settings"]["llm"]["model"] == "openai/other"
    assert second["misc_settings"]["app_preferences"]["language"] == "de"


async def test_what_has_no_setting_is_read_back_as_it_was_stored(rest: httpx.AsyncClient) -> None:
    extra = {"temperature": 0.5, "extra_headers": {"X-Team": "a team's key"}}
    await changed(
        rest,
        agent_settings_diff={"llm": {**LLM, **extra}, "verification": {"critic_enabled": True}},
        misc_settings_diff={"panel": {"width": 3, "open": True}},
    )
    shown = await changed(rest, misc_settings_diff={"panel": {"open": None}})
    assert shown["misc_settings"]["panel"] == {"width": 3}
    assert shown["agent_settings"]["verification"] == {"critic_enabled": True}
    assert shown["agent_settings"]["llm"]["temperature"] == 0.5
    assert shown["agent_settings"]["llm"]["extra_headers"] == {"X-Team": MASKED}


async def test_a_masked_key_is_no_change_and_null_removes_a_key(rest: httpx.AsyncClient) -> None:
    await changed(rest, agent_settings_diff={"llm": LLM})
    shown = await changed(rest, agent_settings_diff={"llm": {"api_key": MASKED, "model": "openai/o3"}})
    assert (shown["llm_api_key_is_set"], shown["agent_settings"]["llm"]["model"]) == (True, "openai/o3")
    moved = {"llm": {"base_url": "https://elsewhere.example.org/v1"}}
    assert (await rest.patch(SETTINGS, json={"agent_settings_diff": moved})).status_code == 400
    shown = await changed(rest, agent_settings_diff={"llm": {"api_key": None}})
    assert (shown["llm_api_key_is_set"], shown["agent_settings"]["llm"]["api_key"]) == (False, None)


async def test_no_answer_has_a_key(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    await changed(rest, agent_settings_diff={"llm": LLM})
    await rest.post(f"{API}/profiles/mine", json={"llm": LLM})
    server = {"url": "https://tools.example.org/mcp", "auth": {"strategy": "bearer", "value": "sk-tools-01"}}
    await rest.post(f"{SETTINGS}/mcp/tools", json=server)
    await rest.put(f"{SETTINGS}/secrets", json={"name": "TOKEN", "value": "sk-secret-02"})
    for path in ("/settings", "/profiles", "/profiles/mine", "/settings/secrets", "/settings/secrets/TOKEN"):
        for header in ("encrypted", "plaintext"):
            with subtests.test(path=path, header=header):
                answer = await rest.get(f"{API}{path}", headers={"x-expose-secrets": header})
                assert "sk-" not in answer.text.replace(LLM["model"], "")


async def test_a_change_that_is_refused_changes_nothing(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    before = await changed(rest, agent_settings_diff={"llm": LLM})
    wrong: list[tuple[int, Any]] = [
        (400, {}),
        (422, {"agent_settings_diff": {"llm": {"model": 3}}}),
        (422, {"conversation_settings_diff": {"confirmation_mode": "perhaps"}}),
        (422, {"agent_settings_diff": {"condenser": {"max_size": 1}}}),
        (422, {"agent_settings_diff": {"mcp_config": {"a": {"url": "file:///etc/passwd"}}}}),
        (422, {"agent_settings_diff": {"mcp_config": {"a": {}}}}),
        (422, {"agent_settings_diff": []}),
        (422, {"agent_settings_diff": {"llm": None}}),
        (422, {"agent_settings_diff": {"mcp_config": {"a": {"command": "x", "args": 3}}}}),
        (422, {"misc_settings_diff": {"app_preferences": "text"}}),
        (422, {"misc_settings_diff": {"deep": deep(200)}}),
        (404, {"active_profile": "none"}),
        (404, {"active_agent_profile_id": "5e1d9a7e-3d57-4bd5-9a51-0a1f6f2b7c22"}),
        (404, {"active_meta_profile": "none"}),
    ]
    no_objects: list[Any] = ["text", [], 3]
    for member in ("llm", "condenser", "mcp_config"):
        wrong += [(422, {"agent_settings_diff": {member: each}}) for each in no_objects]
    for status, body in wrong:
        with subtests.test(body=str(body)[:80]):
            answer = await rest.patch(SETTINGS, json={"misc_settings_diff": {"x": 1}, **body} if body else {})
            assert (answer.status_code, bool(answer.json()["detail"])) == (status, True)
    assert (await rest.get(SETTINGS)).json() == before


def deep(depth: int) -> dict[str, Any]:
    """Return an object that is nested this deep."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


async def test_tool_servers_have_names_and_headers_and_v0_has_them_in_its_lists(
    rest: httpx.AsyncClient, alice: User
) -> None:
    entry = {"url": "https://tools.example.org/mcp", "headers": {"X-Key": "sk-header"}, "description": "Adds"}
    assert (await rest.post(f"{SETTINGS}/mcp/adding", json=entry)).status_code == 201
    assert (await rest.post(f"{SETTINGS}/mcp/adding", json=entry)).status_code == 409
    program = {"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "sk-environment"}}
    assert (await rest.post(f"{SETTINGS}/mcp/My files", json=program)).status_code == 201
    lists = (await rest.get("/api/settings")).json()["mcp_config"]
    assert [each["url"] for each in lists["shttp_servers"]] == [entry["url"]]
    assert [each["name"] for each in lists["stdio_servers"]] == ["My-files"]
    shown = (await rest.patch(f"{SETTINGS}/mcp/adding", json={"enabled": False})).json()
    assert shown["agent_settings"]["mcp_config"] == {
        "adding": {**entry, "headers": {"X-Key": MASKED}, "enabled": False},
        "My files": {**program, "env": {"TOKEN": MASKED}},
    }
    conversation = await astore.call(creation.create, alice)
    found = await astore.call(servers.servers_of, conversation)
    assert [each.name for each in found.servers] == ["My files"]
    # V0's client stores its lists: what it has added is shown, too, and what it has removed is gone.
    kept = {**lists, "stdio_servers": [], "sse_servers": [{"url": "https://sse.example.org/sse"}]}
    await rest.post("/api/settings", json={"mcp_config": kept})
    shown = (await rest.get(SETTINGS)).json()["agent_settings"]["mcp_config"]
    assert shown.keys() == {"adding", "sse.example.org"}
    assert shown["sse.example.org"]["transport"] == "sse"
    assert (await rest.delete(f"{SETTINGS}/mcp/adding")).status_code == 200
    assert (await rest.delete(f"{SETTINGS}/mcp/adding")).status_code == 404


async def test_what_was_shown_of_a_tool_server_is_no_change_of_it(
    rest: httpx.AsyncClient, alice: User
) -> None:
    address = {"url": "https://tools.example.org/mcp?api_key=sk-address-01&x=1", "description": "Adds"}
    program = {
        "command": "npx",
        "args": ["-y", "x", "--token", "sk-argument-02"],
        "env": {"A": "sk-env-0003"},
    }
    await changed(rest, agent_settings_diff={"mcp_config": {"adding": address, "my_token": program}})
    before = await astore.call(named_servers.of_user, alice.pk)
    shown = (await rest.get(SETTINGS)).json()["agent_settings"]["mcp_config"]
    assert "sk-" not in str(shown)
    assert shown["my_token"]["args"] == ["-y", "x", "--token", MASKED]
    await changed(rest, agent_settings_diff={"mcp_config": shown})
    assert await astore.call(named_servers.of_user, alice.pk) == before
    more = {**shown["my_token"], "args": ["--quiet", *shown["my_token"]["args"]]}
    assert (await rest.patch(f"{SETTINGS}/mcp/my_token", json=more)).status_code == 200
    after = await astore.call(named_servers.of_user, alice.pk)
    assert after["my_token"] == {**program, "args": ["--quiet", *program["args"]]}
    shown = (await rest.get(SETTINGS)).json()["agent_settings"]["mcp_config"]
    body = {"agent_settings": {"llm": LLM, "mcp_config": shown}, "workspace": START["workspace"]}
    assert (await rest.post(AGENT, json=body)).status_code == 201
    sealed = await astore.call(lambda: AgentSetup.objects.get().sealed_agent.open())
    assert json.loads(sealed)["mcp_config"] == after


async def test_a_masked_key_of_a_profile_is_its_own(rest: httpx.AsyncClient, alice: User) -> None:
    await changed(rest, agent_settings_diff={"llm": {**LLM, "api_key": "sk-settings-01"}})
    own = {**LLM, "api_key": "sk-profile-002", "extra_headers": {"X-Team": "sk-header-0003"}}
    await rest.post(f"{API}/profiles/mine", json={"llm": own})
    shown = (await rest.get(f"{API}/profiles/mine")).json()["config"]
    assert "sk-" not in str(shown)
    assert (await rest.post(f"{API}/profiles/mine", json={"llm": {**shown, "temperature": 1}})).is_success
    stored = await astore.call(user_documents.document, alice.pk, DocumentKind.MODEL_PROFILE, "mine")
    assert stored == {**own, "temperature": 1}
    agent = {"llm_profile_ref": "mine", "agent_context": {"secrets": {"A": "sk-context-04"}}}
    await rest.post(f"{API}/agent-profiles/all", json=agent)
    shown = (await rest.get(f"{API}/agent-profiles/all")).json()["profile"]
    assert (await rest.post(f"{API}/agent-profiles/all", json=shown)).is_success
    stored = await astore.call(user_documents.document, alice.pk, DocumentKind.AGENT_PROFILE, "all")
    assert (stored["agent_context"], stored["revision"]) == (agent["agent_context"], 1)


async def test_a_null_or_blank_key_clears_that_of_a_profile(
    rest: httpx.AsyncClient, alice: User, subtests: pytest.Subtests
) -> None:
    headers = {"X-Team": "sk-header-0003"}
    for key in (None, ""):
        with subtests.test(key=key):
            await rest.post(f"{API}/profiles/mine", json={"llm": {**LLM, "extra_headers": headers}})
            sent = {**LLM, "extra_headers": {"X-Team": MASKED}, "api_key": key}
            assert (await rest.post(f"{API}/profiles/mine", json={"llm": sent})).is_success
            stored = await astore.call(user_documents.document, alice.pk, DocumentKind.MODEL_PROFILE, "mine")
            assert stored == {**LLM, "extra_headers": headers, "api_key": None}
            (shown,) = (await rest.get(f"{API}/profiles")).json()["profiles"]
            assert shown["api_key_set"] is False


async def test_agent_profiles_follow_a_model_profile_that_is_renamed(
    rest: httpx.AsyncClient, alice: User
) -> None:
    await rest.post(f"{API}/profiles/fast", json={"llm": LLM})
    await rest.post(f"{API}/agent-profiles/mine", json={"llm_profile_ref": "fast"})
    await rest.post(f"{API}/agent-profiles/other", json={"llm_profile_ref": "slow"})
    assert (await rest.post(f"{API}/profiles/fast/rename", json={"new_name": "quick"})).is_success
    stored = await astore.call(user_documents.documents, alice.pk, DocumentKind.AGENT_PROFILE)
    assert [(each["llm_profile_ref"], each["revision"]) for each in stored.values()] == [
        ("quick", 1),
        ("slow", 0),
    ]
    assert (await rest.post(f"{API}/agent-profiles/mine/materialize")).json()["llm_api_key_set"] is True


async def test_tool_servers_that_no_key_opens_are_not_overwritten_by_a_change(
    rest: httpx.AsyncClient, settings: Any
) -> None:
    await rest.post(f"{SETTINGS}/mcp/first", json={"url": "https://first.example.org/mcp"})
    key, settings.SECRET_KEY = settings.SECRET_KEY, "another key, which is long enough for any mode"
    second = {"url": "https://second.example.org/mcp"}
    assert (await rest.post(f"{SETTINGS}/mcp/second", json=second)).status_code == 503
    settings.SECRET_KEY = key
    shown = (await rest.get(SETTINGS)).json()["agent_settings"]["mcp_config"]
    assert list(shown) == ["first"]
    settings.SECRET_KEY = "another key, which is long enough for any mode"
    assert await changed(rest, agent_settings_diff={"mcp_config": None})
    assert (await rest.post(f"{SETTINGS}/mcp/second", json=second)).is_success


async def test_the_keys_of_an_agent_profile_stay_at_their_servers(
    rest: httpx.AsyncClient, alice: User, subtests: pytest.Subtests
) -> None:
    server = {"url": "https://tools.example.org/mcp", "headers": {"X-Key": "sk-header-0815"}}
    agent = {"llm": LLM, "mcp_config": {"adding": server}}
    elsewhere = "https://elsewhere.example.org/v1"
    moved: dict[str, dict[str, Any]] = {
        "llm": {"llm": {**LLM, "api_key": MASKED, "base_url": elsewhere}},
        "server": {"mcp_config": {"adding": {"url": elsewhere, "headers": {"X-Key": MASKED}}}},
        "older form": {"mcp_config": {"mcpServers": {"adding": {"url": elsewhere, "headers": MASKED}}}},
    }
    for name, change in moved.items():
        with subtests.test(name):
            await rest.post(f"{API}/agent-profiles/mine", json=agent)
            shown = (await rest.get(f"{API}/agent-profiles/mine")).json()["profile"]
            await rest.post(f"{API}/agent-profiles/mine", json={**shown, **change})
            kept = await astore.call(user_documents.document, alice.pk, DocumentKind.AGENT_PROFILE, "mine")
            assert elsewhere in str(kept)
            assert str(kept).count("sk-") == 1


async def test_a_key_within_an_argument_or_an_address_stays_at_its_program(
    rest: httpx.AsyncClient, alice: User, subtests: pytest.Subtests
) -> None:
    key = "sk-argument-0815"
    servers: list[dict[str, Any]] = [
        {"command": "good", "args": [f"--api-key={key}", "--token", key], "env": {"TOKEN": key}},
        {"command": "good", "args": ["mcp", "--header", f"Authorization: Bearer {key}"]},
        {"url": f"https://tools.example.org/mcp?api_key={key}"},
    ]
    for server in servers:
        with subtests.test(server=server):
            await rest.post(f"{API}/agent-profiles/mine", json={"mcp_config": {"adding": server}})
            shown = (await rest.get(f"{API}/agent-profiles/mine")).json()["profile"]
            assert key not in str(shown)
            shown["mcp_config"]["adding"]["command"] = "elsewhere"
            await rest.post(f"{API}/agent-profiles/mine", json=shown)
            kept = await astore.call(user_documents.document, alice.pk, DocumentKind.AGENT_PROFILE, "mine")
            assert kept["mcp_config"]["adding"]["command"] == "elsewhere"
            assert key not in str(kept)


async def test_a_tool_server_that_moves_leaves_its_keys_behind(rest: httpx.AsyncClient, alice: User) -> None:
    server = {"url": "https://tools.example.org/mcp", "headers": {"X-Key": "sk-header-0815"}}
    await rest.post(f"{SETTINGS}/mcp/adding", json=server)
    await rest.patch(f"{SETTINGS}/mcp/adding", json={"url": "https://elsewhere.example.org/mcp"})
    moved = await astore.call(named_servers.of_user, alice.pk)
    assert "elsewhere" in str(moved)
    assert "sk-" not in str(moved)


async def test_a_model_of_the_settings_is_saved_as_a_profile_with_all_its_keys(
    rest: httpx.AsyncClient, alice: User
) -> None:
    whole = {**LLM, "extra_headers": {"X-Team": "sk-header-0003"}}
    shown = (await changed(rest, agent_settings_diff={"llm": whole}))["agent_settings"]["llm"]
    assert (await rest.post(f"{API}/profiles/new", json={"llm": shown})).is_success
    stored = await astore.call(user_documents.document, alice.pk, DocumentKind.MODEL_PROFILE, "new")
    assert stored == whole


async def test_a_profile_without_a_key_has_that_of_the_settings_in_a_conversation(
    rest: httpx.AsyncClient, alice: User
) -> None:
    await changed(rest, agent_settings_diff={"llm": LLM})
    bare = {"model": "openai/o3", "base_url": LLM["base_url"]}
    await rest.post(f"{API}/profiles/bare", json={"llm": bare, "include_secrets": False})
    info = await started(rest)
    assert (await rest.post(f"{AGENT}/{info['id']}/switch_profile", json={"profile_name": "bare"})).is_success
    shown = (await rest.get(f"{AGENT}/{info['id']}")).json()["agent"]["llm"]
    assert shown == {**bare, "api_key": MASKED}


async def test_a_key_that_conversations_do_not_mask_is_told_as_on_the_page(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for key, note in (("sk-1", NOT_MASKED), ("ollama", ""), ("sk-0123456789", ""), (MASKED, ""), (None, "")):
        with subtests.test(key=key):
            llm = {**LLM, "api_key": key}
            shown = await changed(rest, agent_settings_diff={"llm": llm})
            assert shown.get("notice", "") == note
            saved = (await rest.post(f"{API}/profiles/mine", json={"llm": llm})).json()["message"]
            assert saved == ("Profile 'mine' saved" + (f". {note}" if note else ""))
            active = (await rest.post(f"{API}/profiles/mine/activate")).json()["message"]
            assert active.endswith(note or "settings")
            await rest.delete(f"{API}/profiles/mine")
    form = (await rest.get(f"{SETTINGS}/agent-schema")).text
    assert MASKED_FROM in form


async def test_a_renamed_agent_profile_tells_its_new_name(rest: httpx.AsyncClient) -> None:
    profiles = f"{API}/agent-profiles"
    await rest.post(f"{profiles}/mine", json={})
    await rest.post(f"{profiles}/mine/rename", json={"new_name": "ours"})
    shown = (await rest.get(f"{profiles}/ours")).json()
    assert (shown["name"], shown["profile"]["name"]) == ("ours", "ours")
    profile_id = shown["profile"]["id"]
    assert (await rest.post(f"{profiles}/{profile_id.upper()}/activate")).json()["id"] == profile_id
    assert (await rest.get(SETTINGS)).json()["active_agent_profile_id"] == profile_id
    await rest.delete(f"{profiles}/ours")
    assert (await rest.get(SETTINGS)).json()["active_agent_profile_id"] is None


async def test_a_header_of_a_tool_server_is_masked_in_events(rest: httpx.AsyncClient) -> None:
    server = {"url": "https://tools.example.org/mcp", "headers": {"X-Key": "sk-header-0815"}}
    await rest.post(f"{SETTINGS}/mcp/adding", json=server)
    info = await started(rest, initial_message={"role": "user", "content": "it is sk-header-0815"})
    events = (await rest.get(f"{AGENT}/{info['id']}/events/search")).text
    assert "sk-header-0815" not in events


async def test_a_tool_server_is_tested(rest: httpx.AsyncClient) -> None:
    async with tool_server("streamable", key="sk-right") as (url, _):
        server: dict[str, Any] = {"type": "http", "url": url, "headers": {"Authorization": "no"}}
        body = {"name": "adding", "server": server}
        wrong = (await rest.post(f"{API}/mcp/test", json=body)).json()
        assert (wrong["ok"], wrong["error_kind"], "key" in wrong["error"]) == (False, "connection", True)
        server["headers"] = {"Authorization": "Bearer sk-right"}
        right = (await rest.post(f"{API}/mcp/test", json=body)).json()
        assert right == {"ok": True, "tools": ["add", "halve"]}
    assert (await rest.post(f"{API}/mcp/test", json={"server": {}})).status_code == 422


async def test_profiles_are_stored_renamed_activated_and_deleted(rest: httpx.AsyncClient) -> None:
    profiles = f"{API}/profiles"
    assert (await rest.post(f"{profiles}/fast", json={"llm": LLM})).status_code == 201
    assert (await rest.post(f"{profiles}/open", json={"llm": LLM, "include_secrets": False})).is_success
    listed = (await rest.get(profiles)).json()
    assert [(each["name"], each["api_key_set"]) for each in listed["profiles"]] == [
        ("fast", True),
        ("open", False),
    ]
    assert (await rest.post(f"{profiles}/fast/rename", json={"new_name": "open"})).status_code == 409
    assert (await rest.post(f"{profiles}/fast/rename", json={"new_name": "faster"})).status_code == 200
    assert (await rest.post(f"{profiles}/faster/activate")).json()["llm_applied"] is True
    shown = (await rest.get(SETTINGS)).json()
    assert (shown["active_profile"], shown["llm_api_key_is_set"]) == ("faster", True)
    assert shown["agent_settings"]["llm"] == {**LLM, "api_key": MASKED}
    assert (await rest.delete(f"{profiles}/faster")).status_code == 200
    assert (await rest.get(SETTINGS)).json()["active_profile"] is None
    for method, path in (("GET", "faster"), ("POST", "faster/activate"), ("POST", "none/activate")):
        assert (await rest.request(method, f"{profiles}/{path}")).status_code == 404
    for name in ("a b", "-x", "x" * 65, "%C3%A4"):
        assert (await rest.post(f"{profiles}/{name}", json={"llm": LLM})).status_code == 422


async def test_a_user_has_a_bounded_number_of_profiles_of_a_bounded_size(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_documents, "DOCUMENTS_MAX", 2)
    monkeypatch.setattr(user_documents, "DOCUMENT_MAX_BYTES", 2000)
    for name, status in (("a", 201), ("b", 201), ("a", 201), ("c", 400)):
        assert (await rest.post(f"{API}/profiles/{name}", json={"llm": LLM})).status_code == status
    long = {**LLM, "extra": "x" * 2000}
    assert (await rest.post(f"{API}/profiles/a", json={"llm": long})).status_code == 400
    assert [each["name"] for each in (await rest.get(f"{API}/profiles")).json()["profiles"]] == ["a", "b"]


async def test_an_agent_profile_names_the_model_and_the_tool_servers_of_a_start(
    rest: httpx.AsyncClient,
) -> None:
    await rest.post(f"{API}/profiles/fast", json={"llm": LLM})
    for name in ("one", "two"):
        await rest.post(f"{SETTINGS}/mcp/{name}", json={"url": f"https://{name}.example.org/mcp"})
    profile = {"agent_kind": "openhands", "llm_profile_ref": "fast", "mcp_server_refs": ["two", "gone"]}
    profiles = f"{API}/agent-profiles"
    assert (await rest.post(f"{profiles}/mine", json=profile)).status_code == 201
    assert (await rest.post(f"{profiles}/mine", json=profile)).status_code == 201
    (found,) = (await rest.get(profiles)).json()["profiles"]
    assert (found["name"], found["revision"], found["llm_profile_ref"]) == ("mine", 1, "fast")
    findings = (await rest.post(f"{profiles}/mine/materialize")).json()
    assert (findings["valid"], findings["dangling_mcp_server_refs"]) == (True, ["gone"])
    start = {"agent_profile_id": found["id"], "workspace": START["workspace"]}
    info = (await rest.post(AGENT, json=start)).json()
    assert info["agent"]["llm"] == {**LLM, "api_key": MASKED}
    assert list(info["agent"]["mcp_config"]) == ["two"]
    start["agent_profile_id"] = "5e1d9a7e-3d57-4bd5-9a51-0a1f6f2b7c22"
    assert (await rest.post(AGENT, json=start)).status_code == 404
    refused: list[dict[str, Any]] = [
        {"llm_profile_ref": 3},
        {"mcp_server_refs": [{}]},
        {"mcp_server_refs": "two"},
    ]
    for wrong in refused:
        assert (await rest.post(f"{profiles}/other", json=wrong)).status_code == 422
    assert (await rest.get(f"{profiles}/a%00b")).status_code == 404
    assert (await rest.delete(f"{profiles}/a%00b")).status_code == 200
    acp = await rest.post(f"{profiles}/other", json={"agent_kind": "acp", "acp_server": "codex"})
    assert (acp.status_code, "ACP" in acp.json()["detail"]) == (422, True)


async def test_a_masked_key_of_a_start_is_filled_in_for_the_same_server_only(
    rest: httpx.AsyncClient, alice: User
) -> None:
    await changed(rest, agent_settings_diff={"llm": LLM})
    for base_url, is_filled in ((LLM["base_url"], True), ("https://elsewhere.example.org/v1", False)):
        settings = {"agent_kind": "openhands", "llm": {**LLM, "api_key": MASKED, "base_url": base_url}}
        body = {"agent_settings": settings, "workspace": START["workspace"]}
        info = (await rest.post(AGENT, json=body)).json()
        assert (info["agent"]["llm"].get("api_key") == MASKED) is is_filled
    unset = {"agent_settings": {"llm": {"model": None}}, "workspace": START["workspace"]}
    assert (await rest.post(AGENT, json=unset)).json()["agent"]["llm"]["model"] == "default"
    acp = {"agent_settings": {"agent_kind": "acp"}, "workspace": START["workspace"]}
    assert (await rest.post(AGENT, json=acp)).status_code == 422


async def test_a_child_is_started_with_the_agent_of_its_parent(rest: httpx.AsyncClient) -> None:
    parent = await started(rest, agent={**START["agent"], "llm": LLM})
    body = {"task": "Look around", "title": "A child"}
    child = (await rest.post(f"{AGENT}/{parent['id']}/children", json=body)).json()
    assert (child["parent_conversation_id"], child["title"]) == (parent["id"], "A child")
    info = (await rest.get(f"{AGENT}/{child['conversation_id']}")).json()
    assert info["agent"] == parent["agent"]
    events = (await rest.get(f"{AGENT}/{child['conversation_id']}/events/search")).json()["items"]
    assert "Look around" in str(events)
    for wrong in ({}, {"task": ""}, {"task": 3}):
        assert (await rest.post(f"{AGENT}/{parent['id']}/children", json=wrong)).status_code == 422


async def test_a_model_of_a_conversation_is_replaced_and_its_earlier_key_stays_masked(
    rest: httpx.AsyncClient,
) -> None:
    info = await started(rest, agent={**START["agent"], "llm": LLM})
    address = f"{AGENT}/{info['id']}"
    await rest.post(
        f"{API}/profiles/fast", json={"llm": {**LLM, "model": "openai/o3", "api_key": "sk-ABCDEFGH"}}
    )
    assert (await rest.post(f"{address}/switch_profile", json={"profile_name": "fast"})).is_success
    shown = (await rest.get(address)).json()["agent"]
    assert (shown["llm"]["model"], shown["llm"]["api_key"]) == ("openai/o3", MASKED)
    assert shown["tools"] == START["agent"]["tools"]
    await rest.post(f"{address}/events", json={"role": "user", "content": f"{LLM['api_key']} sk-ABCDEFGH"})
    texts = (await rest.get(f"{address}/events/search")).text
    assert LLM["api_key"] not in texts
    assert "sk-ABCDEFGH" not in texts
    assert (await rest.post(f"{address}/switch_profile", json={"profile_name": "gone"})).status_code == 404
    assert (await rest.post(f"{address}/switch_llm", json={"llm": {"base_url": "x"}})).status_code == 422


async def test_a_provider_of_the_pages_is_a_profile_without_a_model_which_nothing_activates(
    rest: httpx.AsyncClient, alice: User
) -> None:
    info = await started(rest)
    address = "https://models.example.org/v1"
    await astore.call(model_providers.add, alice.pk, "Workshop", base_url=address, key="sk-ABCDEFGH")
    [listed] = (await rest.get(f"{API}/profiles")).json()["profiles"]
    assert (listed["name"], listed["model"], listed["base_url"]) == ("Workshop", None, address)
    for path, body in [
        (f"{API}/profiles/Workshop/activate", {}),
        (f"{AGENT}/{info['id']}/switch_profile", {"profile_name": "Workshop"}),
    ]:
        refused = await rest.post(path, json=body)
        assert (refused.status_code, "names no model" in refused.json()["detail"]) == (409, True)


async def test_secrets_are_stored_replaced_and_never_shown(rest: httpx.AsyncClient) -> None:
    secrets = f"{SETTINGS}/secrets"
    for value in ("first", "second"):
        new = {"name": "TOKEN", "value": value, "description": f"the {value}"}
        assert (await rest.put(secrets, json=new)).json() == {"name": "TOKEN", "description": f"the {value}"}
    assert (await rest.get(secrets)).json() == {"secrets": [{"name": "TOKEN", "description": "the second"}]}
    assert (await rest.get(f"{secrets}/TOKEN")).status_code == 403
    assert (await rest.delete(f"{secrets}/TOKEN")).json() == {"deleted": True}
    assert [(await rest.request(each, f"{secrets}/TOKEN")).status_code for each in ("GET", "DELETE")] == [
        404,
        404,
    ]
    for name, value in (("A-B", "x"), ("1A", "x"), ("A", " "), ("A", MASKED), ("A" * 65, "x")):
        assert (await rest.put(secrets, json={"name": name, "value": value})).status_code == 422


async def test_neither_a_key_of_a_conversation_nor_a_reading_token_opens_settings(
    accounts: None, rest: httpx.AsyncClient, alice: User, bob: User, subtests: pytest.Subtests
) -> None:
    def keys() -> tuple[str, str, str]:
        conversation = creation.create(alice, version=Version.V1)
        small = Grant(scopes=[Scope.READ, Scope.WRITE, Scope.RUN])
        whole = Grant(scopes=list(Scope))
        return (
            conversation_keys.key_of(conversation),
            ApiToken.issue(alice.pk, "small", small)[1],
            ApiToken.issue(bob.pk, "bob's", whole)[1],
        )

    key, small, others = await astore.call(keys)
    for path in ("settings", "settings/secrets", "profiles", "agent-profiles"):
        for prefix in (API, "/api"):
            with subtests.test(path=f"{prefix}/{path}"):
                by_key = await rest.get(f"{prefix}/{path}", headers={"x-session-api-key": key})
                by_token = await rest.get(f"{prefix}/{path}", headers={"x-session-api-key": small})
                assert (by_key.status_code, by_token.status_code) == (401, 403)
    mine = ApiToken.issue
    token = (await astore.call(mine, alice.pk, "alice's", Grant(scopes=list(Scope))))[1]
    await rest.post(f"{API}/profiles/mine", json={"llm": LLM}, headers=bearer(token))
    assert (await rest.get(f"{API}/profiles/mine", headers=bearer(others))).status_code == 404
    assert (await rest.get(f"{API}/profiles", headers=bearer(others))).json()["profiles"] == []


async def test_documents_are_encrypted_and_go_on_under_a_new_key(
    rest: httpx.AsyncClient, settings: Any
) -> None:
    await rest.post(f"{API}/profiles/mine", json={"llm": LLM})
    stored = await astore.call(lambda: UserDocument.objects.get(kind="model_profile").sealed.token)
    assert LLM["api_key"] not in stored
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key, which is long enough for any mode"
    row = await astore.call(lambda: UserDocument.objects.get(kind="model_profile"))
    assert await astore.call(row.rotate) is True
    settings.SECRET_KEY_FALLBACKS = []
    shown = (await rest.get(f"{API}/profiles/mine")).json()
    assert shown["config"]["api_key"] == MASKED


AUTHS: list[tuple[Any, Any]] = [
    ({"strategy": "none"}, {"strategy": "none"}),
    ({"strategy": "bearer", "value": "sk-12345678"}, {"strategy": "bearer", "value": MASKED}),
    (
        {"strategy": "basic", "username": "ann", "password": "sk-12345678"},
        {"strategy": "basic", "username": "ann", "password": MASKED},
    ),
    (
        {"strategy": "header", "headers": {"X-A": "sk-12345678"}},
        {"strategy": "header", "headers": {"X-A": MASKED}},
    ),
    ("sk-12345678", MASKED),
    (["sk-12345678"], MASKED),
    ("oauth", "oauth"),
]


def test_the_auth_of_a_tool_server_shows_how_it_is_opened(subtests: pytest.Subtests) -> None:
    for auth, shown in AUTHS:
        with subtests.test(auth=auth, shown=shown):
            assert setup_keys.masked({"mcp_config": {"a": {"auth": auth}}}) == {
                "mcp_config": {"a": {"auth": shown}}
            }
