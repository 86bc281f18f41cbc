"""Tool servers that tests start: `python -m tests.tool_program KIND [FILE]`.

`counting` is an MCP server with tools that leave a line in the file for each run. `parent` is one that starts
quickly, has a child and never answers a call. The others misbehave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def counting(file: Path) -> None:
    """Serve tools by the library's own server."""
    import anyio
    from mcp.server.mcpserver import MCPServer
    from mcp_types import ToolAnnotations

    server = MCPServer("counting")

    def note(line: str) -> None:
        with file.open("a") as log:
            log.write(f"{os.getpid()} {line}\n")

    note("started")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        note(f"add {a} {b}")
        return str(a + b)

    @server.tool()
    def repeat(text: str, times: int) -> str:
        """Repeat a text."""
        note(f"repeat {times}")
        return text * times

    @server.tool()
    def fail() -> str:
        """Fail."""
        note("fail")
        raise ValueError("It is broken.")

    @server.tool()
    def variables() -> str:
        """Name what is in the environment."""
        return " ".join(os.environ)

    @server.tool()
    async def hang() -> str:
        """Never answer."""
        note("hang")
        await anyio.sleep_forever()
        return ""

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def delete(path: str) -> str:
        """Delete a file."""
        note(f"delete {path}")
        return f"deleted {path}"

    server.run("stdio")


def parent(file: Path) -> None:
    """Start another program, and never answer a call."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    file.open("a").write(f"{os.getpid()} started\n{child.pid} started\n")
    about: dict[str, object] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "serverInfo": {"name": "p", "version": "1"},
    }
    tools: dict[str, object] = {"tools": [{"name": "hang", "inputSchema": {"type": "object"}}]}
    for line in sys.stdin:
        asked = json.loads(line)
        match asked["method"]:
            case "initialize":
                answer = about
            case "tools/list":
                answer = tools
            case "tools/call":
                file.open("a").write(f"{os.getpid()} hang\n")
                continue
            case _:
                continue
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
    time.sleep(600)


def garbage() -> None:
    """Write what is no message, and listen to nothing."""
    while True:
        print("Welcome!", flush=True)


def flood() -> None:
    """Write messages without end."""
    line = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n' * 100
    while True:
        sys.stdout.write(line)


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


if __name__ == "__main__":
    kind = {"garbage": garbage, "flood": flood, "long": long, "silent": silent, "gone": gone}
    if sys.argv[1] in ("counting", "parent"):
        {"counting": counting, "parent": parent}[sys.argv[1]](Path(sys.argv[2]))
    else:
        kind[sys.argv[1]]()
