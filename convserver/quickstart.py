"""The text that `serve` prints once it listens: three examples that can be pasted unchanged."""

from __future__ import annotations

from uuid import uuid4

from convserver import program
from convserver.configuration import AuthMode, Configuration

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - only accounts mode listens there

LET_IN = """
# 0. Put the server's key (its SESSION_API_KEY) into a variable
read -rs SESSION_API_KEY && export SESSION_API_KEY
"""
LOG_IN = """
# 0. Create an account, and put an API token into a variable; both need the server's environment
{python} -m convserver manage createsuperuser --username me

export TOKEN=$({python} -m convserver manage create_token me --name "first steps {id}")
"""
STEPS = """\
convserver is running at http://{place} (press Ctrl-C to stop it).
Open that address in a browser, or try one of these in another terminal, in this directory:
{preparation}
# 1. curl: create a conversation, send a message, read the log
curl -sw '\\n'{header} {api} {json} -d '{{"id": "{id}"}}'
curl -sw '\\n'{header} {api}/{id}/events {json} -d '{{"type": "message", "text": "Hello"}}'
sleep 3; curl -sw '\\n'{header} {api}/{id}/events

# 2. Python: send a message, and print the messages until the agent is done
{python} -c '
import json, os
from websockets.sync.client import connect
with connect("{socket}"{headers}) as socket:
    frames = map(json.loads, socket)
    next(frame for frame in frames if frame["type"] == "replay_complete")
    socket.send(json.dumps({{"type": "message", "text": "Hello from Python"}}))
    for frame in frames:
        if frame.get("kind") == "message":
            print(frame["source"] + ":", frame["text"])
        if frame.get("kind") == "turn":
            break
'

# 3. WebSocket: connect, then type a frame
{python} -m websockets {socket}
{auth}{{"type": "message", "text": "Hello over the socket"}}
"""


def text(configuration: Configuration, port: int) -> str:
    """Return the server's address, and examples for curl, Python and a socket."""
    host = EVERYWHERE.get(configuration.host, configuration.host)  # no client can ask "every address"
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    python = program.python()
    preparation, variable = _key(configuration)
    name = example_id()
    return STEPS.format(
        place=place,
        python=python,
        preparation=preparation.format(python=python, id=name[:6]),
        api=f"http://{place}/api/native/conversations",
        json="-H 'Content-Type: application/json'",
        id=name,
        socket=f"ws://{place}/ws/conversations/{name}",
        header=f' -H "X-Session-API-Key: ${variable}"' if variable else "",
        headers=f', additional_headers={{"X-Session-API-Key": os.environ["{variable}"]}}' if variable else "",
        auth=f'{{"type": "auth", "token": "what ${variable} holds"}}\n' if variable else "",
    )


def example_id() -> str:
    """Return a new id for the conversation of an example, which no one and no earlier try has used."""
    return uuid4().hex


def _key(configuration: Configuration) -> tuple[str, str]:
    """Return how to get the key that the server requires, and the variable that then holds it."""
    if configuration.session_api_key is not None:
        return LET_IN, "SESSION_API_KEY"
    if configuration.auth is AuthMode.ACCOUNTS:
        return LOG_IN, "TOKEN"
    return "", ""
