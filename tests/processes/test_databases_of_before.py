"""Databases that earlier code has written: a server of today brings them up to date and goes on with them."""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from tests.conftest import once
from tests.support.people.clients import WAIT_S, Server
from tests.support.people.model_talks import KEY
from tests.support.servers.model_server import completion, model_server
from tests.support.wires.network import wait_until

KEPT = Path(__file__).parents[1] / "data" / "stores"


@once
def test_conversations_that_half_an_emoji_has_ended_are_answered_again(tmp_path: Path) -> None:
    """Both had each request to their model fail: their calls and results hold halves of emojis."""
    file = tmp_path / "data" / "convserver.sqlite3"
    file.parent.mkdir(mode=0o700)
    file.write_bytes(lzma.decompress((KEPT / "halves-of-characters.sqlite3.xz").read_bytes()))
    file.chmod(0o600)
    before = payloads(file)
    server = Server(tmp_path)
    with model_server(lambda asked: completion(["It rains."])) as (base_url, asked):
        server.start(DATABASE_URL="", LLM_MODEL="openai/gpt-x", LLM_BASE_URL=base_url, LLM_API_KEY=KEY)
        try:
            for name in ("dead-v0", "dead-v1"):
                assert answer(server, name) == "It rains."
        finally:
            server.stop()
    assert all("\ufffd" in str(each.body) for each in asked)
    assert payloads(file)[: len(before)] == before  # the log keeps what came


def answer(server: Server, name: str) -> str:
    """Say something in a conversation, and return what its model answers."""
    events = f"{server.url}/api/native/conversations/{name}/events"
    with httpx.Client(timeout=WAIT_S) as client:
        sent = client.post(events, json={"type": "message", "id": "again", "text": "How is it now?"})
        assert sent.status_code == 200, sent.text

        def since() -> list[dict[str, str]]:
            found = client.get(events, params={"after": sent.json()["seq"]}).json()["events"]
            return [event for event in found if event["kind"] in ("message", "turn")]

        wait_until(lambda: any(event["kind"] == "turn" for event in since()))
        return next((event["text"] for event in since() if event["kind"] == "message"), "")


def payloads(file: Path) -> list[tuple[str, int, str]]:
    """Return what the log of a database has, as it is stored."""
    with closing(sqlite3.connect(file)) as outside:
        return list(
            outside.execute("SELECT conversation_id, seq, payload FROM conversations_event ORDER BY id")
        )
