"""Where a provider is: a host that a user has named, checked before a token is sent there."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from django.conf import settings

from sessions_app.git_providers.base import InvalidName

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
NAME_AND_PORT = re.compile(
    rf"(?P<name>{LABEL}(?:\.{LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII
)
NAME_MAX_CHARS = 253
PIECE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A host that may be asked: over HTTPS, or over plain HTTP when it is this machine itself."""

    scheme: str
    name: str
    """With its port, if it has one of its own."""
    path: str = ""

    @property
    def origin(self) -> str:
        """Return scheme and name, without a slash at the end."""
        return f"{self.scheme}://{self.name}"


def parse_host(text: str | None, *, public: str, takes_path: bool = False) -> Host:
    """Read a host as users write it: `name`, `name:port` or `https://name`; nothing is the public one.

    `takes_path` allows a path behind it. Plain HTTP is for loopback addresses alone, and without a scheme
    these get it; with accounts they are refused, for users must not reach what only the server's machine
    should. Raise InvalidName; what was written is not repeated, since it may hold a password.
    """
    scheme, rest = _without_scheme((text or "").strip() or public)
    name, _, path = rest.partition("/")
    name = name.lower()
    is_loopback = _is_loopback(_checked_name(name))
    if is_loopback and settings.CONFIGURATION.auth == "accounts":
        raise InvalidName("A git provider cannot be on the server's own machine.")
    if scheme == "http" and not is_loopback:
        raise InvalidName("A git provider is asked over https only, except on this machine itself.")
    if path and not (takes_path and all(PIECE.fullmatch(piece) for piece in path.split("/"))):
        raise InvalidName("The host of a git provider must stand alone, without a path.")
    return Host(scheme="http" if is_loopback and scheme != "https" else "https", name=name, path=path)


def _without_scheme(text: str) -> tuple[str, str]:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "", text.rstrip("/")
    if scheme.lower() not in ("https", "http"):
        raise InvalidName("A git provider is asked over https only.")
    return scheme.lower(), rest.rstrip("/")


def _checked_name(name: str) -> str:
    """Return the name without its port."""
    found = NAME_AND_PORT.fullmatch(name)
    if found is None or len(found["name"]) > NAME_MAX_CHARS or not 0 < int(found["port"] or 443) < 65_536:
        raise InvalidName("The host of a git provider must be a plain name such as git.example.com.")
    return found["name"]


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        if name.startswith("["):
            raise InvalidName("The host of a git provider is not an address.") from None
        return name == "localhost"
