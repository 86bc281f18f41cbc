"""A whole task on a repository, from its clone to the pull request, whose server is killed at each step."""

from __future__ import annotations

import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import Kind
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import creation
from sessions_app.git_providers.base import ProviderType
from sessions_app.loops import decisions
from sessions_app.models import AgentLoop, UnknownAnswer, Workspace
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.people.model_talks import KEY
from tests.support.servers import sandboxes
from tests.support.servers.git_host import GitHost, git
from tests.support.servers.model_server import Answer, Asked, calling, completion, model_server
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.no_second_try, pytest.mark.one_engine, pytest.mark.timeout(600)]

SWEEPS_OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2}
WITHIN_S = 120.0
TOKEN = f"ghp_{secrets.token_hex(16)}"
FILES = {
    "sums.py": "def add(a, b):\n    return a - b\n",
    "test_sums.py": (
        "import unittest\n\nfrom sums import add\n\n\nclass Sums(unittest.TestCase):\n"
        "    def test_adds(self):\n        self.assertEqual(add(2, 3), 5)\n"
    ),
}
LAST_WORDS = "The sum is right now."
TESTS = "python3 -m unittest -q 2>&1"
Call = tuple[str, dict[str, Any]]


def ran(name: str, command: str) -> Call:
    """Return the call of a command that writes a line for each time that it is run."""
    return "terminal", {"command": f"cd /workspace/site && echo {name} >>../ran && {command}"}


# Each can be repeated, for a person who is asked about an unknown outcome says that it is to run again.
STEPS: Sequence[Call] = (
    ran("list", "git log --oneline && ls"),
    ("file_editor", {"command": "view", "path": "/workspace/site/sums.py"}),
    ran("fail", f"{TESTS}; true"),
    (
        "file_editor",
        {
            "command": "str_replace",
            "path": "/workspace/site/sums.py",
            "old_str": "a - b",
            # Of another length: Python may take its compiled copy of a file of the same second and size.
            "new_str": "a + b  # not a - b",
        },
    ),
    ran("pass", TESTS),
    ran("commit", "git checkout -q -B fix-sum && { git commit -qam 'Add, not subtract' || git log -1; }"),
    (
        "create_pull_request",
        {"branch": "fix-sum", "title": "Add, not subtract", "body": "The test passes.", "draft": False},
    ),
)


class Model:
    """Answers with one step after the other, and holds the answer to one of its questions back."""

    def __init__(self, held: int | None) -> None:
        self.is_held = threading.Event()
        self.goes_on = threading.Event()
        self._held = held

    def answer(self, asked: Asked) -> Answer:
        done = sum(each["role"] == "tool" for each in asked.body["messages"])
        if done == self._held and not self.goes_on.is_set():
            self.is_held.set()
            self.goes_on.wait(WITHIN_S)
        return calling(STEPS[done]) if done < len(STEPS) else completion([LAST_WORDS])


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    directory = tmp_path / "provider"
    directory.mkdir()
    with GitHost(ProviderType.GITHUB, TOKEN, directory) as served:
        served.make("site", FILES)
        yield served


@pytest.fixture
def talk(alice: User, host: GitHost) -> ConversationRef:
    user_settings.change_provider_tokens(alice.pk, {host.provider: host.token}, mcp_config=None)
    made = creation.create(
        alice,
        conversation_id="talk",
        version=Version.V0,
        title="A talk",
        repository=host.full_name("site"),
        provider=host.provider.value,
    )
    writes.append(made, [event("The sum is wrong. Mend it.", is_input=True)])
    return made


@contextmanager
def answered_by(alice: User, model: Model) -> Iterator[None]:
    with model_server(model.answer) as (base_url, _):
        values = {
            "llm_model": "openai/gpt-x",
            "llm_base_url": base_url,
            "git_user_name": "Ann",
            "git_user_email": "ann@example.org",
        }
        user_settings.change_settings(alice.pk, values, secrets={SettingSecret.LLM_API_KEY: KEY})
        try:
            yield
        finally:
            model.goes_on.set()


class Person:
    """Who approves what asks first, and lets what may not have run be run again."""

    def __init__(self, talk: ConversationRef) -> None:
        self.talk = talk
        self.again = 0

    def is_done(self) -> bool:
        """Decide what waits, and return whether the turn is over."""
        for call in decisions.pending(self.talk)[:1]:
            is_unknown = call.asks == "outcome"
            self.again += is_unknown
            outcome = UnknownAnswer.RUN_AGAIN if is_unknown else None
            decisions.decide(self.talk, True, "I have looked.", outcome=outcome)
        said = Event.objects.of(self.talk).filter(text=LAST_WORDS).exists()
        return said and AgentLoop.objects.of(self.talk).filter(turn_id=None).exists()


def require_done(talk: ConversationRef, host: GitHost, workspace: Path, *, again: int) -> None:
    """Check what came of it, and that no command ran more often than a person wanted."""
    told = Counter((workspace / "ran").read_text().split())
    assert set(told) == {"list", "fail", "pass", "commit"}
    assert sum(told.values()) - len(told) <= again
    results = [row.text for row in Event.objects.of(talk).filter(kind=Kind.TOOL_RESULT).oldest_first()]
    assert len(results) == len(STEPS)
    assert "FAILED (failures=1)" in results[2]
    assert re.search(r"^OK$", results[4], re.MULTILINE)
    assert "a + b" in git(host.bare("site"), "show", "fix-sum:sums.py")
    assert "a - b" in git(host.bare("site"), "show", "main:sums.py")
    assert git(host.bare("site"), "log", "-1", "--format=%an %ae", "fix-sum") == "Ann ann@example.org"
    assert Conversation.objects.get(pk=talk.pk).pr_number


# In the clone, before each of the seven calls, and before the last words.
MOMENTS = (
    "clone",
    *(pytest.param(step, marks=pytest.mark.slow) for step in range(len(STEPS))),
    len(STEPS),
)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_task_ends_the_same_though_its_server_is_killed(
    server: Server,
    alice: User,
    talk: ConversationRef,
    host: GitHost,
    tmp_path: Path,
    configured: Callable[..., None],
    moment: str | int,
) -> None:
    root = tmp_path / "workspaces"
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, root)
    own = {"CONVSERVER_SANDBOX": "bubblewrap", "CONVSERVER_WORKSPACES": str(root), "CONVSERVER_AGENT": "auto"}
    person = Person(talk)
    model = Model(None if moment == "clone" else int(moment))
    if moment == "clone":
        host.holds = threading.Event()
    with answered_by(alice, model):
        server.start(constants=SWEEPS_OFTEN, **own)
        held = host.held if moment == "clone" else model.is_held
        wait_until(lambda: held.is_set() or person.is_done(), within_s=WITHIN_S)
        assert held.is_set()
        server.kill()
        model.goes_on.set()
        if host.holds is not None:
            host.holds.set()
        server.start(constants=SWEEPS_OFTEN, **own)
        wait_until(person.is_done, within_s=WITHIN_S)
        server.stop()
    workspace = root / Workspace.objects.get(conversation_id=talk.pk).directory
    require_done(talk, host, workspace, again=person.again)
    assert TOKEN not in server.log.read_text()
