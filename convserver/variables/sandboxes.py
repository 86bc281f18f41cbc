"""The variables of the sandbox in which commands of agents run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from convserver.variables import ConfigurationError, Given, choice, whole, words
from sessions_app.sandbox.base import SandboxName
from sessions_app.sandbox_network.policy import NetworkPolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxSettings:
    """What a sandbox may use, and what it is made with; each has a variable of its own."""

    memory_mb: int = 2_000
    """Of all programs together; half as much in `/tmp`, and a quarter in `/dev/shm`."""
    processes: int = 512
    """Processes and threads."""
    user: str = "nobody"
    """The account that runs commands, if root starts the server."""
    image: str = "debian:bookworm"
    """Docker's."""
    checkpoints: int = 50
    """How many checkpoints of its files a conversation keeps; 0 for none."""
    network: NetworkPolicy = NetworkPolicy.OFF
    """Which conversations have a network."""


def sandbox(name: str, text: str, given: Given) -> SandboxName:
    """Read the name of a sandbox. Raise ConfigurationError."""
    found: SandboxName = choice(SandboxName)(name, text, given)
    if found == SandboxName.NONE and not given.is_local:
        raise ConfigurationError(
            f"{name} is {text!r}, with which every user could run commands as the server's account. In "
            "accounts mode it must be one of: auto, bubblewrap, docker, off."
        )
    return found


def _network(text: str, given: Given) -> NetworkPolicy:
    """Read which conversations have a network. Raise ConfigurationError."""
    name = "CONVSERVER_SANDBOX_NETWORK"
    found: NetworkPolicy = choice(NetworkPolicy)(name, text, given)
    if found != NetworkPolicy.OFF and given.known["sandbox"] == SandboxName.DOCKER:
        raise ConfigurationError(
            f"{name} is {text!r}, but containers of Docker get no network here. Set it to off, or "
            "CONVSERVER_SANDBOX to bubblewrap."
        )
    return found


def commands(name: str, text: str, given: Given) -> tuple[tuple[str, ...], ...]:
    """Read beginnings of commands as words. Raise ConfigurationError."""
    try:
        return tuple(tuple(shlex.split(each)) for each in words(name, text, given))
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}, but a quotation in it has no end.") from None


def sandbox_settings(_: str, __: str, given: Given) -> SandboxSettings:
    """Read what a sandbox may use. Raise ConfigurationError."""
    least_mb, least_processes, most, most_checkpoints = 64, 16, 10_000_000, 10_000
    default = SandboxSettings()

    def text_of(part: str) -> str:
        return given.environment.get(f"CONVSERVER_SANDBOX_{part.upper()}") or str(getattr(default, part))

    return SandboxSettings(
        memory_mb=whole(least_mb, most)("CONVSERVER_SANDBOX_MEMORY_MB", text_of("memory_mb"), given),
        processes=whole(least_processes, most)("CONVSERVER_SANDBOX_PROCESSES", text_of("processes"), given),
        user=text_of("user"),
        image=text_of("image"),
        checkpoints=whole(0, most_checkpoints)(
            "CONVSERVER_SANDBOX_CHECKPOINTS", text_of("checkpoints"), given
        ),
        network=_network(text_of("network"), given),
    )
