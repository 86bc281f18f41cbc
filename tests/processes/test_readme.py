"""The commands of the README work exactly as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from sessions_app.models import ApiToken
from tests.conftest import once
from tests.support.people.clients import Server

README = (Path(__file__).parents[2] / "README.md").read_text()
LIFE, STRANGER = re.findall(r"^```sh\n(.+?)^```$", README, re.MULTILINE | re.DOTALL)

pytestmark = [once, pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")]


def lines_of(commands: str, server: Server, **environment: str) -> list[str]:
    """Run the commands against the server and return the lines that they print."""
    script = "set -e\n" + commands.replace("http://127.0.0.1:8000", server.url)
    printed = subprocess.check_output(
        ["bash", "-c", script], text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **environment}
    )
    return printed.splitlines()


def check_life(lines: list[str]) -> str:
    """Check what the first block prints, and return the conversation's id."""
    polled, listed, renamed, events, stopped, started = map(json.loads, lines)
    (conversation,) = listed["results"]
    assert (conversation["status"], renamed, stopped["conversation_status"]) == ("RUNNING", True, "RUNNING")
    assert started["conversation_status"] == "RUNNING"
    said = [
        event["message"].partition("\n")[0] for event in events["events"] if event.get("action") == "message"
    ]
    assert said == ["Hello", "You said: Hello"]
    assert polled["events"][0] == events["events"][0]
    conversation_id: str = conversation["conversation_id"]
    return conversation_id


def test_the_whole_life_of_a_conversation_works_as_printed(server: Server) -> None:
    server.start()
    lines = lines_of(f"{LIFE}\n{STRANGER.partition('TOKEN=$MINE')[2]}", server)
    check_life(lines[:-2])
    assert lines[-2:] == ["true", "null"]


def test_a_strangers_token_sees_nothing_of_it(server: Server, alice: User, bob: User) -> None:
    tokens = {
        name: ApiToken.issue(user.pk, "curl")[1]
        for name, user in (("TOKEN", alice), ("STRANGERS_TOKEN", bob))
    }
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    lines = lines_of(f"{LIFE}\n{STRANGER}", server, **tokens)
    conversation_id = check_life(lines[:-7])
    info, listed, events, started, deleted = map(json.loads, lines[-7:-2])
    assert (info, listed, deleted) == (None, {"results": [], "next_page_id": None}, False)
    assert events == {"detail": f"Conversation {conversation_id} not found"}
    assert started == {"status": "error", "conversation_id": conversation_id}
    assert lines[-2:] == ["true", "null"]
