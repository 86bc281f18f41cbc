"""Which agent plays in a conversation, and from when; agents of installed packages."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from convserver import configuration
from sessions_app import astore
from sessions_app.agents import registry, sources
from sessions_app.agents.remote import attachments
from sessions_app.loops.manager import ConversationManager, close_manager, get_manager
from sessions_app.models import AgentLoop
from sessions_app.processes import this_process
from sessions_app.settings import run_options
from tests.conftest import Join
from tests.support.people.clients import Client
from tests.support.people.model_talks import answers_of, error_of, said
from tests.support.people.scripted_agent import (
    Stage,
    ask,
    loop_of,
    manager,
    stage,
    until,
    until_said,
    until_status,
)

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

AGENTS_PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
SCRIPTED = "tests.support.people.scripted_agent.ScriptedAgent"


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, alice: User) -> ConversationRef:
    """An empty conversation, of either wire."""
    return creation.create(alice, conversation_id="talk", version=request.param)


async def choose(talk: ConversationRef, agent: str) -> None:
    await astore.call(run_options.change, talk, {"agent": agent})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a package for one test: its module, and its entry points by their names."""
    names: list[str] = []

    def installed(module: str, code: str, points: dict[str, str]) -> None:
        names.append(module)
        (tmp_path / f"{module}.py").write_text(code)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"[{sources.GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        _forget()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield installed
    monkeypatch.undo()
    _forget()
    for name in names:
        sys.modules.pop(name, None)


def _forget() -> None:
    sources.packaged.cache_clear()
    registry._imported.cache_clear()
    registry._unimportable.clear()


@pytest.fixture
def documented_package(install: Callable[..., None]) -> None:
    """Install the package of docs/agents.md."""
    page = AGENTS_PAGE.read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    project = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert code is not None
    assert project is not None
    found = tomllib.loads(project[1])["project"]["entry-points"][sources.GROUP]
    install("dice_agent", code[1], found)


# Choosing


async def test_a_conversation_is_played_by_the_agent_that_was_chosen_for_it(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await ask(talk, "hello")
    await until_said(talk, "answer to hello")
    assert (await loop_of(talk)).agent == SCRIPTED
    await choose(talk, "demo")
    await ask(talk, "/finish")
    await until_said(talk, "answer to hello", "The task is done.")
    assert (await loop_of(talk)).agent == "sessions_app.agents.demo.DemoAgent"
    await choose(talk, "")
    await ask(talk, "again")
    await until_said(talk, "answer to hello", "The task is done.", "answer to again")
    assert (await loop_of(talk)).agent == SCRIPTED


async def test_a_turn_that_waits_goes_on_with_the_agent_that_it_began_with(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await ask(talk, "approve")
    await until_status(talk, "waiting_for_confirmation")
    await choose(talk, "demo")
    await close_manager()  # another process goes on
    stage.go.set()
    await get_manager().confirm(talk, accept=True)
    await until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None).exists())
    await ask(talk, "/finish")
    await until_said(talk, "The task is done.")
    assert stage.asked == [["approve"], ["approve"]]


async def problem_of(client: Client) -> str:
    """Say something, and return what the user reads about the turn, which fails."""
    await said(client, "hello")
    return (await error_of(client)).removeprefix("error: ")


async def test_an_agent_that_is_gone_is_said_to_be(talk: ConversationRef, join: Join) -> None:
    await choose(talk, "wizard")
    told = "This server has no agent `wizard`. Choose another one for this conversation."
    assert await problem_of(await join(talk)) == told


async def test_an_agent_that_is_offered_no_more_is_said_to_be(
    talk: ConversationRef, join: Join, configured: Callable[..., None]
) -> None:
    configured(agents=("auto",))
    await choose(talk, "demo")
    told = "The agent `demo` isn't offered on this server. Choose another one for this conversation."
    assert await problem_of(await join(talk)) == told


# Installed packages


@pytest.mark.usefixtures("documented_package")
async def test_the_documented_package_is_found_and_plays(talk: ConversationRef, join: Join) -> None:
    assert "dice_agent" not in sys.modules
    await choose(talk, "dice")
    frames = await said(await join(talk), "roll 3 dice")
    assert answers_of(frames)[0].startswith("You rolled ")


@pytest.mark.usefixtures("documented_package")
def test_a_package_is_imported_once_its_agent_is_used(database: None) -> None:
    assert list(registry.offered())[-1] == "dice"
    assert registry.path_of("dice") == "dice_agent.DiceAgent"
    assert "dice_agent" not in sys.modules
    found = {kind.name: kind for kind in registry.kinds()}["dice"]
    assert (found.title, found.problem, found.uses_model) == ("Dice", "", False)
    assert "dice_agent" in sys.modules


@pytest.mark.usefixtures("documented_package")
def test_an_agent_of_a_package_can_be_the_default_one(tmp_path: Path) -> None:
    names = {"CONVSERVER_AGENT": "dice", "CONVSERVER_AGENTS": "dice,demo"}
    found = configuration.read({"CONVSERVER_DATA_DIR": str(tmp_path), **names})
    assert (found.agent, found.agents) == ("dice_agent.DiceAgent", ("dice", "demo"))


BROKEN = 'raise RuntimeError("There is no dice\\nfactory.")'


async def test_a_package_that_cannot_be_imported_is_shown_and_harms_nothing(
    talk: ConversationRef, install: Callable[..., None], join: Join, rest: httpx.AsyncClient
) -> None:
    install("broken_agent", BROKEN, {"broken": "broken_agent:Agent", "demo": "broken_agent:Demo"})
    why = "The agent `broken` can't be used: There is no dice factory."
    shown = {each["name"]: each for each in (await rest.get("/api/native/agents")).json()["agents"]}
    assert shown["broken"]["problem"] == why
    assert shown["demo"]["problem"] == ""
    refused = await rest.patch("/api/native/conversations/talk/options", json={"agent": "broken"})
    assert (refused.status_code, why in refused.text) == (400, True)
    await choose(talk, "broken")
    client = await join(talk)
    assert await problem_of(client) == why
    await choose(talk, "demo")
    assert answers_of(await said(client, "hello"))[0].startswith("You said: hello")


async def test_a_class_that_cannot_play_is_no_agent(
    talk: ConversationRef, install: Callable[..., None], join: Join
) -> None:
    install("idle_agent", "class Idle:\n    pass\n", {"idle": "idle_agent:Idle"})
    await choose(talk, "idle")
    assert await problem_of(await join(talk)) == "The agent `idle` can't be used: its class has no `play`."


# The list, and what may be chosen


async def test_the_agents_are_listed_with_what_people_read(
    rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent=sources.BUILT_IN_AGENTS["auto"])
    answer = (await rest.get("/api/native/agents")).json()["agents"]
    assert [each["name"] for each in answer] == list(sources.BUILT_IN_AGENTS)
    assert [each["default"] for each in answer] == [True, *[False] * (len(answer) - 1)]
    assert all(each["title"] and each["description"] and not each["problem"] for each in answer)
    uses_model = {each["name"]: each["uses_model"] for each in answer}
    assert (uses_model["demo"], uses_model["llm"]) == (False, True)


async def test_remote_agents_are_listed_to_their_user_while_they_are_connected(
    rest: httpx.AsyncClient, alice: User, bob: User
) -> None:
    helper = await astore.call(attachments.attach, alice.pk, "helper", None, this_process())
    await astore.call(attachments.attach, bob.pk, "stranger", None, this_process())
    *own, remote = (await rest.get("/api/native/agents")).json()["agents"]
    assert {each["connected"] for each in own} == {None}
    assert (remote["name"], remote["title"], remote["connected"]) == ("remote:helper", "helper", True)
    assert remote["description"] == "A program outside this server."
    await astore.call(attachments.detach, helper)
    assert (await rest.get("/api/native/agents")).json()["agents"] == own


async def test_an_unknown_agent_is_refused_with_the_names_of_those_that_there_are(
    conversation: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent=SCRIPTED, agents=("demo", "llm"))
    answer = await rest.patch("/api/native/conversations/talk/options", json={"agent": "auto"})
    assert answer.status_code == 400
    assert f"There is no agent 'auto' to choose. There are {SCRIPTED}, demo, llm." in answer.text
    for name in (SCRIPTED, "demo", ""):
        changed: Any = await rest.patch("/api/native/conversations/talk/options", json={"agent": name})
        assert (changed.status_code, changed.json()["agent"]) == (200, name)


async def test_the_list_shows_only_what_the_operator_offers(
    rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent=sources.BUILT_IN_AGENTS["demo"], agents=("llm",))
    answer = (await rest.get("/api/native/agents")).json()["agents"]
    assert [(each["name"], each["default"]) for each in answer] == [("demo", True), ("llm", False)]
