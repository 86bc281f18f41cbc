"""Which sandbox the settings choose, and whether it works here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from sessions_app.sandbox.base import NoSandbox, Sandbox, SandboxLimits, SandboxName
from sessions_app.sandbox.bubblewrap import Bubblewrap
from sessions_app.sandbox.docker import Docker
from sessions_app.sandbox.measuring import HeldOnDisk
from sessions_app.sandbox.ownership import Account, account
from sessions_app.sandbox.unconfined import Unconfined
from sessions_app.sandbox_network.policy import NetworkPolicy


class SandboxState(NamedTuple):
    """What the pages and `convserver doctor` say about the sandbox."""

    name: SandboxName
    works: bool
    sentence: str


def chosen() -> Sandbox:
    """Return the sandbox in which commands run. Raise NoSandbox if there is none, or it does not work."""
    found = settings.CONFIGURATION
    if found.sandbox == SandboxName.OFF:
        raise NoSandbox(
            "There is no terminal: CONVSERVER_SANDBOX is off. The server's operator can set it to auto."
        )
    uses = found.sandbox_settings
    room = HeldOnDisk(found.workspace_max_mb * 1_000_000, found.workspace_max_files)
    limits = SandboxLimits(uses.memory_mb, uses.processes, found.workspace_max_mb, room)
    kept = (found.data_dir, found.workspaces)
    sandbox = _looked_at(found.sandbox, limits, account(), uses.image, kept)
    if isinstance(sandbox, NoSandbox):
        raise NoSandbox(str(sandbox))
    return sandbox


def state() -> SandboxState:
    """Return which sandbox is chosen, and whether it works; the first call looks, and takes some ms."""
    name = SandboxName(settings.CONFIGURATION.sandbox)
    try:
        sandbox = chosen()
    except NoSandbox as error:
        return SandboxState(name, False, str(error))
    if sandbox.asks_first:
        return SandboxState(
            name,
            True,
            "Commands run without a sandbox, with the network of this machine, and each has to be approved.",
        )
    network = {
        NetworkPolicy.OFF: "without network",
        NetworkPolicy.ASK: "with a network where the owner of the conversation has switched it on",
        NetworkPolicy.ALLOWED: "with a network unless the owner of the conversation has switched it off",
    }[settings.CONFIGURATION.sandbox_settings.network]
    return SandboxState(sandbox.name, True, f"Commands run in a sandbox ({sandbox.name}) {network}.")


@cache
def _looked_at(
    name: SandboxName, limits: SandboxLimits, account: Account | None, image: str, kept: tuple[Path, ...]
) -> Sandbox | NoSandbox:
    """Return the sandbox that works, or why it does not."""
    sandbox: Sandbox
    match name:
        case SandboxName.DOCKER:
            sandbox = Docker(limits, account, image)
        case SandboxName.NONE:
            sandbox = Unconfined(limits)
        case _:
            sandbox = Bubblewrap(limits, account)
    try:
        sandbox.look()
    except NoSandbox as error:
        return error
    visible = [each for each in kept if each.resolve().is_relative_to("/usr")]
    if visible and not sandbox.asks_first:
        return NoSandbox(
            f"There is no terminal, because commands see what is in /usr, and {visible[0]} is in it. Move it "
            "(CONVSERVER_DATA_DIR, CONVSERVER_WORKSPACES)."
        )
    return sandbox
