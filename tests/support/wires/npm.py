"""Programs in JavaScript that tests drive with node: where npm installs each, and what it lacks."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class NpmPackage:
    """A package from npm, pinned by the lock file of a directory of its own."""

    name: str
    directory: Path
    oldest_node: int
    """The oldest major version of node that runs it."""

    @property
    def installed(self) -> Path:
        """Where npm puts it."""
        return self.directory / "node_modules" / self.name

    def problem(self) -> str | None:
        """Say in a few words why tests cannot drive it; None when they can."""
        if problem := self.node_problem():
            return problem
        if not self.installed.is_dir():
            return f"npm has not installed it in tests/{self.directory.name}"
        return None

    def node_problem(self) -> str | None:
        """Say in a few words why node cannot run it; None when it can."""
        node = shutil.which("node")
        if node is None:
            return "there is no node"
        told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        if int(told.removeprefix("v").partition(".")[0]) < self.oldest_node:
            return f"node is {told}, older than {self.oldest_node}"
        return None


SOCKET_IO_CLIENT = NpmPackage(name="socket.io-client", directory=TESTS / "socket_io_client", oldest_node=18)
MCP_CONFORMANCE = NpmPackage(
    name="@modelcontextprotocol/conformance", directory=TESTS / "mcp_conformance", oldest_node=20
)
