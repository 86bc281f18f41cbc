"""The protocol's own conformance suite: against the MCP door, and against fixtures on its transport."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.log import writes
from sessions_app.models import ApiToken, Grant, Scope
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S, Server
from tests.support.wires.npm import MCP_CONFORMANCE

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(bool(MCP_CONFORMANCE.problem()), reason=MCP_CONFORMANCE.problem() or ""),
]

PROGRAM = MCP_CONFORMANCE.installed / "dist" / "index.js"
AUTHORIZE = MCP_CONFORMANCE.directory / "authorize.mjs"
EXPECTED_FAILURES = MCP_CONFORMANCE.directory / "expected-failures.yml"
OF_ANY_SERVER = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "dns-rebinding-protection",
)
"""Scenarios that need no fixtures; of prompts there is no list, for the door has none."""
AT_ONCE = 2


def conformance(server: Server, *options: str, token: str = "") -> str:
    """Run scenarios against a server; return what the suite says. Fail unless they end as the list says."""
    with_token = ["--import", str(AUTHORIZE)] if token else []
    arguments = ["server", "--url", f"{server.url}/mcp", "--expected-failures", str(EXPECTED_FAILURES)]
    ended = subprocess.run(
        ["node", *with_token, str(PROGRAM), *arguments, *options],
        env={**os.environ, "CONVSERVER_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * WAIT_S,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_the_door_passes_what_is_asked_of_any_server(server: Server, conversation: ConversationRef) -> None:
    writes.append(conversation, [event("hello")])
    server.start()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        told = list(threads.map(lambda name: conformance(server, "--scenario", name), OF_ANY_SERVER))
    assert all("0 failed" in each for each in told)


@pytest.mark.slow
def test_fixtures_pass_all_but_the_expected_failures_with_a_token_that_may_read(
    server: Server, alice: User
) -> None:
    _, token = ApiToken.issue(alice.pk, "suite", Grant(scopes=frozenset({Scope.READ})))
    server.command = ["tests.support.servers.mcp_fixtures", "serve"]
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    told = conformance(server, "--suite", "all", token=token)
    expected = yaml.safe_load(EXPECTED_FAILURES.read_text())
    # The suite itself says nothing of a name that it does not know.
    assert list(expected) == ["server"]
    assert all(f"  ~ {scenario}\n" in told for scenario in expected["server"])
