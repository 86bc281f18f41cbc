"""The sandboxes in which tests run real programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil

from sessions_app.sandbox import choice
from sessions_app.sandbox.base import SandboxName
from tests.support.people import commands


def use(name: SandboxName, configured: Callable[..., None], workspaces: Path) -> None:
    """Let a test run programs in this sandbox; skip the test where it does not work."""
    configured(sandbox=name, workspaces=workspaces)
    state = choice.state()
    if not state.works:
        commands.do_without(state.sentence)


def running(word: str) -> list[int]:
    """Return the processes that have this word in their command lines."""
    found = []
    for each in psutil.process_iter(["pid", "cmdline", "status"]):
        if each.info["status"] != psutil.STATUS_ZOMBIE and word in " ".join(each.info["cmdline"] or ()):
            found.append(int(each.info["pid"]))
    return found
