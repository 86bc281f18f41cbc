"""The MCP door, asked by the protocol's own client library: over HTTP, and by a command over stdio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from conversations.events import ConversationRef
from conversations.log import writes
from sessions_app import astore
from tests.support.data.events import event
from tests.support.people.clients import Server, program_environment
from tests.support.runner import forks

pytestmark = pytest.mark.needs_engine

ROOT = Path(__file__).parents[2]
ACCOUNTS = {"CONVSERVER_AUTH": "accounts", "CONVSERVER_ALLOWED_HOSTS": "example.org"}
Opened = Callable[[], AbstractAsyncContextManager[Client]]


@pytest.fixture(params=["HTTP", "stdio"])
def opened(
    request: pytest.FixtureRequest, conversation: ConversationRef, server: Server, tmp_path: Path
) -> Opened:
    """Open the door in one of its ways; the conversation has a hundred events."""
    writes.append(conversation, [event(f"line {number}, needle {number}") for number in range(100)])
    environment = {**program_environment(tmp_path), "PYTHONPATH": str(ROOT)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "convserver", "mcp"], env=environment, cwd=str(ROOT)
    )
    if request.param == "HTTP":
        server.start()

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Client]:
        async with Client(f"{server.url}/mcp" if request.param == "HTTP" else command) as client:
            yield client

    return open_it


@pytest.mark.sampled(1)
async def test_a_program_finds_pages_and_reads(opened: Opened, conversation: ConversationRef) -> None:
    async with opened() as client:

        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result
            return json.loads(result.content[0].text)  # type: ignore[union-attr]

        assert {tool.name for tool in (await client.list_tools()).tools} >= {"search", "read_conversation"}
        [hit] = (await call("search", query="needle 42"))["events"]
        assert hit["seq"] == 42
        texts, after = [], -1
        while after is not None:
            page = await call("read_conversation", conversation_id=hit["conversation_id"], after=after)
            texts += [each["text"] for each in page["events"]]
            after = page["next_after"]
        assert texts == [f"line {number}, needle {number}" for number in range(100)]
        [resource] = (await client.list_resources()).resources
        assert "line 0" in (await client.read_resource(resource.uri)).contents[0].text
        result = await client.call_tool("read_conversation", {"conversation_id": "none"})
        assert result.is_error


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (ACCOUNTS, "CONVSERVER_TOKEN is missing"),
        ({"DATABASE_URL": ""}, "Run this first:"),
    ],
)
async def test_the_command_says_what_it_lacks(
    database: None, tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    environment = {**os.environ, **program_environment(tmp_path), **variables}
    ended = await astore.call(forks.run, ["convserver", "mcp"], environment)
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert ended.stdout == ""
