"""Tool servers that tests start: `python -m tests.support.servers.tool_program KIND [FILE]`.

`library` is the MCP library's own server. `counting` starts faster: it speaks the protocol by hand, and its
tools leave a line in the file for each run. `parent` has a child. `scripted` does what its file says. The
others misbehave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "p", "version": "1"}}
ADDENDS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
HINTS = {"delete": {"destructiveHint": True}, "repeat": {"readOnlyHint": True}}


def library(file: Path) -> None:
    """Serve a tool by the library's own server."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("adding")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        note(file, f"add {a} {b}")
        return str(a + b)

    note(file, "started")
    server.run("stdio")


def counting(file: Path) -> None:
    """Serve tools by hand, one call after the other."""
    note(file, "started")
    for line in sys.stdin:
        asked = json.loads(line)
        if (answer := _answer(file, asked)) is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)


def parent(file: Path) -> None:
    """Serve the same, with a child, and stay after the end of the input."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with file.open("a") as log:
        log.write(f"{child.pid} started\n")
    counting(file)
    time.sleep(600)


def halving(file: Path) -> None:
    """Serve a tool that returns half of an emoji, and bytes that are no UTF-8, and is described with both."""
    note(file, "started")
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        answers = {
            "initialize": ABOUT,
            "tools/list": {
                "tools": [
                    {
                        "name": "halve",
                        "description": "Half of \ud83c\udf27: \ud83c",
                        "inputSchema": {"type": "object", "properties": {"\udf27": {"default": "\ud83c"}}},
                    }
                ]
            },
            "tools/call": {"content": [{"type": "text", "text": "rain \ud83c, caf?"}]},
        }
        if asked["method"] == "tools/call":
            line.decode()
            note(file, f"halve {asked['params']['arguments']!a}")
        if asked["method"] in answers:
            message = {"jsonrpc": "2.0", "id": asked["id"], "result": answers[asked["method"]]}
            sys.stdout.buffer.write(json.dumps(message).encode().replace(b"caf?", b"caf\xe9") + b"\n")
            sys.stdout.buffer.flush()


def scripted(file: Path) -> None:
    """Serve what the file has: `pages` of tools, and for each tool a list of `answers`.

    An answer is the JSON of a result, text that is written as it is with the id in place of ID, or null for
    none; the last one is given from then on. A tool whose answer is a number ends the program with it.
    `heard` in the file's folder gets what the program is told.
    """
    script = json.loads(file.read_text())
    sys.stderr.write(script.get("stderr", ""))
    sys.stderr.flush()
    if "exit" in script:
        sys.exit(script["exit"])
    answers = {name: list(each) for name, each in script.get("answers", {}).items()}
    heard = file.with_name("heard").open("a")
    for line in sys.stdin:
        heard.write(line)
        heard.flush()
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        answer = _scripted(script, answers, asked)
        if isinstance(answer, int):
            sys.exit(answer)
        if isinstance(answer, str):
            print(answer.replace("ID", str(asked["id"])), flush=True)
        elif answer is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)


def _scripted(script: Mapping[str, Any], answers: dict[str, list[Any]], asked: Mapping[str, Any]) -> Any:
    match asked["method"]:
        case "initialize":
            return {**ABOUT, **script.get("about", {})}
        case "tools/list":
            pages = script["pages"]
            place = pages["cursors"].index((asked.get("params") or {}).get("cursor"))
            following = pages["following"][place]
            return {
                "tools": pages["tools"][place],
                **({} if following is None else {"nextCursor": following}),
            }
        case "tools/call":
            left = answers[asked["params"]["name"]]
            return left.pop(0) if len(left) > 1 else left[0]
    return None


def note(file: Path, text: str) -> None:
    """Leave a line in the file."""
    with file.open("a") as log:
        log.write(f"{os.getpid()} {text}\n")


def _answer(file: Path, asked: Mapping[str, Any]) -> object:
    """Return the result of a request; None for what is not answered."""
    match asked["method"]:
        case "initialize":
            return ABOUT
        case "tools/list":
            return {"tools": [_described(name) for name in (*TOOLS, *COUNTED)]}
        case "tools/call":
            return _called(file, asked["params"])
        case _:
            return None


def _described(name: str) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": name, "inputSchema": ADDENDS if name == "add" else {"type": "object"}}
    return {**tool, "annotations": HINTS[name]} if name in HINTS else tool


def _called(file: Path, params: Mapping[str, Any]) -> object:
    name, given = params["name"], params["arguments"]
    if name in COUNTED:
        return _counted(file, params)
    if name == "tick":
        _tick(Path(given["path"]), params["_meta"]["progressToken"])
    shown = " ".join(str(given[key]) for key in ("a", "b", "times") if key in given)
    note(file, f"{name} {given['path'] if name == 'delete' else shown}".strip())
    text = TOOLS[name](given)
    if text is None:
        return None
    return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}


def _tick(end: Path, token: object) -> None:
    """Report progress until the file is there."""
    done = 0
    while not end.exists():
        done += 1
        told = {"progressToken": token, "progress": done, "total": 9, "message": "Tile <b>1</b> of the map"}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}), flush=True)
        time.sleep(0.05)


def _counted(file: Path, params: Mapping[str, Any]) -> object:
    """Leave the key of the call; the first time, wait for the server's end if a file is named for that."""
    given, key = params["arguments"], params["_meta"]["convserver/idempotency-key"]
    note(file, f"{params['name']} {key}")
    held = Path(given["held"]) if given.get("held") else None
    if held is not None and not held.exists():
        server = os.getppid()
        held.touch()
        while os.getppid() == server:
            time.sleep(0.02)
        sys.exit()
    return {"content": [{"type": "text", "text": f"counted {given['number']}"}]}


COUNTED = ("count", "count_again")
"""Tools that the mapping below does not have: they are told the key of the call."""
TOOLS: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "add": lambda given: str(given["a"] + given["b"]),
    "repeat": lambda given: given["text"] * given["times"],
    "fail": lambda given: "It is broken.",
    "variables": lambda given: " ".join(os.environ),
    "wait": lambda given: Path(given["path"]).read_text(),
    "hang": lambda given: None,
    "tick": lambda given: "The map is there.",
    "delete": lambda given: f"deleted {given['path']}",
}
"""By names; `wait` returns what comes by a pipe, `hang` never answers, and `tick` reports its progress."""


def garbage() -> None:
    """Write what is no message, and listen to nothing."""
    while True:
        print("Welcome!", flush=True)


def flood() -> None:
    """Write messages without end."""
    line = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n' * 100
    while True:
        sys.stdout.write(line)


def loud() -> None:
    """Write to the standard error without end."""
    while True:
        sys.stderr.write("x" * 65536)


def long() -> None:
    """Write one message without end."""
    while True:
        sys.stdout.write("x" * 65536)


def silent() -> None:
    """Never answer, and ignore its end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def gone() -> None:
    """End at once."""


SERVERS = {
    "library": library,
    "counting": counting,
    "parent": parent,
    "halving": halving,
    "scripted": scripted,
}
OTHERS = {"garbage": garbage, "flood": flood, "long": long, "loud": loud, "silent": silent, "gone": gone}

if __name__ == "__main__":
    kind = sys.argv[1]
    if kind in SERVERS:
        SERVERS[kind](Path(sys.argv[2]))
    else:
        OTHERS[kind]()
