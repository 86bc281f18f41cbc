"""What forms offer at the V0 door, and what a web client asks before all else (spec V0 §1.8)."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

pytestmark = pytest.mark.one_engine

OPTIONS = "/api/options"
LISTS = ["models", "agents", "security-analyzers"]


async def listed(rest: httpx.AsyncClient, name: str) -> list[str]:
    response = await rest.get(f"{OPTIONS}/{name}")
    assert response.status_code == 200
    found: list[str] = response.json()
    return found


async def test_a_web_client_finds_an_open_source_server_that_reports_nothing_to_anybody(
    rest: httpx.AsyncClient,
) -> None:
    response = await rest.get(f"{OPTIONS}/config")
    assert (response.status_code, response.json()) == (
        200,
        {
            "APP_MODE": "oss",
            "GITHUB_CLIENT_ID": "",
            "POSTHOG_CLIENT_KEY": "",
            "FEATURE_FLAGS": {"ENABLE_BILLING": False, "HIDE_LLM_SETTINGS": False},
        },
    )


async def test_a_list_is_sorted_and_names_nothing_twice(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name in LISTS:
        with subtests.test(name):
            found = await listed(rest, name)
            assert found == sorted(set(found)) != []


async def test_every_model_is_named_with_its_provider(rest: httpx.AsyncClient) -> None:
    models = await listed(rest, "models")
    assert all(provider and name for provider, _, name in (model.partition("/") for model in models))
    assert "openhands/claude-sonnet-4-20250514" in models  # what a first run chooses


@pytest.mark.parametrize("agent", ["BlankAgent", "SilentAgent"])
async def test_the_agents_are_the_wires_and_the_servers_own(
    agent: str, configured: Callable[..., None], rest: httpx.AsyncClient
) -> None:
    configured(agent=f"tests.support.data.faulty.{agent}")
    wires = {
        "BrowsingAgent",
        "CodeActAgent",
        "DummyAgent",
        "LocAgent",
        "ReadOnlyAgent",
        "VisualBrowsingAgent",
    }
    assert set(await listed(rest, "agents")) == wires | {agent}


async def test_the_security_analyzers_are_the_wires(rest: httpx.AsyncClient) -> None:
    assert await listed(rest, "security-analyzers") == ["grayswan", "invariant", "llm"]


async def test_nobody_is_told_the_options_where_credentials_are_asked_for(
    accounts: None, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name in ["config", *LISTS]:
        with subtests.test(name):
            response = await rest.get(f"{OPTIONS}/{name}")
            assert (response.status_code, response.json()) == (401, {"detail": "Unauthorized"})
