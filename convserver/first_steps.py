"""What `serve` prints once it listens: three things to paste that work as they stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from convserver.configuration import AuthMode, Configuration

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listening there is accounts mode's right


class Key(NamedTuple):
    """How a client shows that it may come in: nothing of it is printed but where it is found."""

    preparation: str
    variable: str
    header: str
    value: str


def text(configuration: Configuration, port: int) -> str:
    """Return the address, and how to begin with curl, Python and a socket."""
    host = EVERYWHERE.get(configuration.host, configuration.host)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    key = _key(configuration)
    return f"""
convserver listens on http://{place} (Ctrl-C ends it).
Three ways to begin, to be pasted into another terminal in this directory:
{key.preparation if key else ""}
{_with_curl(f"http://{place}/api/native/conversations", key)}

{_with_python(f"ws://{place}/ws/conversations/my-first", key)}

{_by_hand(f"ws://{place}/ws/conversations/my-first", key)}
"""


def _key(configuration: Configuration) -> Key | None:
    if configuration.session_api_key is not None:
        preparation = """
# 0. The server asks for its key: every other terminal needs it as well.
read -rs SESSION_API_KEY && export SESSION_API_KEY
"""
        return Key(preparation, "SESSION_API_KEY", "X-Session-API-Key", "{}")
    if configuration.auth is AuthMode.ACCOUNTS:
        manage = f"{_python()} -m convserver manage"
        preparation = f"""
# 0. An account and a token, made in the environment that the server has.
{manage} createsuperuser --username me
export TOKEN=$({manage} create_token me --name "first steps")
"""
        return Key(preparation, "TOKEN", "Authorization", "Bearer {}")
    return None


def _with_curl(url: str, key: Key | None) -> str:
    header = f""" -H "{key.header}: {key.value.format(f"${key.variable}")}\"""" if key else ""
    curl, json = f"curl -sw '\\n'{header}", "-H 'Content-Type: application/json'"
    return f"""\
# 1. curl: make a conversation, say something, read the log
{curl} {url} {json} -d '{{"id": "my-first"}}'
{curl} {url}/my-first/events {json} -d '{{"type": "message", "text": "Hello"}}'
sleep 3; {curl} {url}/my-first/events"""


def _with_python(url: str, key: Key | None) -> str:
    lines = ["import json", "from websockets.sync.client import connect"]
    options = ""
    if key:
        lines.insert(1, "from os import environ")
        value = key.value.format(f'" + environ["{key.variable}"]')
        options = f', additional_headers={{"{key.header}": "{value}}}'
    lines += [
        f'with connect("{url}"{options}) as socket:',
        "    frames = map(json.loads, socket)",
        '    next(frame for frame in frames if frame["type"] == "replay_complete")',
        '    socket.send(json.dumps({"type": "message", "text": "Hello from Python"}))',
        "    for frame in frames:",
        '        if frame.get("kind") == "message":',
        '            print(frame["source"] + ":", frame["text"])',
        '        if frame.get("kind") == "turn":',
        "            break",
    ]
    code = "\n".join(lines)
    return f"# 2. Python: say something and show what is said until the turn is over\n{_python()} -c '\n{code}\n'"


def _by_hand(url: str, key: Key | None) -> str:
    auth = f'{{"type": "auth", "token": "the value of ${key.variable}"}}\n' if key else ""
    return f"""\
# 3. A socket by hand: connect, then type a frame
{_python()} -m websockets {url}
{auth}{{"type": "message", "text": "Hello over the socket"}}"""


def _python() -> str:
    """Return how this Python is called from the directory where the server was started."""
    program = Path(sys.executable)
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)
