"""Where a provider is: a host that a user has named, checked before a token is sent there."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import httpx
from django.conf import settings

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
NAME_AND_PORT = re.compile(
    rf"(?P<name>{LABEL}(?:\.{LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII
)
NAME_MAX_CHARS = 253
PORT_MAX = 65_535
SERVER = re.compile(rb"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
"""How a server may be named in a URL: any way that resolvers take, or an address of IPv6."""
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
NOT_PUBLIC = "With accounts, a git provider must have a public address."
WRAPPING = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Networks whose addresses end with the one of IPv4 that they stand for."""
NOT_GLOBAL = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Networks of protocols, of retired relays and of examples, which `is_global` leaves out in some versions."""
PIECE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)


class HostRefused(Exception):
    """This host cannot be one, or this server may not ask it; the text says why, without the host."""


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
    these get it. With accounts every address that is not public is refused, however it is spelled, for
    users must not reach what only the server's machine or network should; `require_public` looks at what
    stands behind a name. Raise HostRefused; what was written is not repeated, since it may hold a password.
    """
    scheme, rest = _without_scheme((text or "").strip() or public)
    name, _, path = rest.partition("/")
    name = name.lower()
    bare_name = _checked_name(name)
    is_loopback = _is_loopback(bare_name)
    if settings.CONFIGURATION.auth == "accounts" and not may_be_public(bare_name):
        raise HostRefused(NOT_PUBLIC)
    if scheme == "http" and not is_loopback:
        raise HostRefused("A git provider is asked over https only, except on this machine itself.")
    if path and not (takes_path and all(PIECE.fullmatch(piece) for piece in path.split("/"))):
        raise HostRefused("The host of a git provider must stand alone, without a path.")
    return Host(scheme="http" if is_loopback and scheme != "https" else "https", name=name, path=path)


def server_url(text: str) -> httpx.URL | None:
    """Read the URL of a server that can be looked up and asked over HTTP; None for whatever is no such."""
    try:
        url = httpx.URL(text.strip())
        host = url.host  # as people write it, which not every xn--name can be
    except (httpx.InvalidURL, UnicodeError):
        return None
    has_port = url.port is None or 0 < url.port <= PORT_MAX
    has_name = host and len(url.raw_host) <= NAME_MAX_CHARS and SERVER.fullmatch(url.raw_host)
    return url if url.scheme in ("http", "https") and has_name and has_port else None


async def require_public(url: httpx.URL) -> None:
    """In accounts mode, look up the host of a URL right before a token is sent there. Raise HostRefused.

    A name without an address passes: a proxy may know it.
    """
    if settings.CONFIGURATION.auth != "accounts":
        return
    with suppress(OSError):
        await public_addresses(url)


async def public_addresses(url: httpx.URL) -> list[str]:
    """Look up where a URL leads. Raise HostRefused unless all of it is public, and OSError for nowhere."""
    # As it will be asked: the resolver would have its own, older way to write other letters in ASCII.
    name = url.raw_host
    found = await asyncio.get_running_loop().getaddrinfo(name, port_of(url), type=socket.SOCK_STREAM)
    addresses = [str(place[0]) for *_, place in found]
    if not all(_is_public(ip_address(address.partition("%")[0])) for address in addresses):
        raise HostRefused(NOT_PUBLIC)
    return addresses


def port_of(url: httpx.URL) -> int:
    """Return the port that is asked, whether the URL names it or not."""
    return url.port or (80 if url.scheme == "http" else 443)


def may_lead_to_public(url: httpx.URL) -> bool:
    """Say whether the host of a URL is no address at all, or a public one."""
    host = url.host.lower()
    try:
        return may_be_public(f"[{host}]" if ":" in host else host)
    except ValueError:
        return False


def may_be_public(name: str) -> bool:
    """Say whether a name is no address at all, or a public one."""
    if name == "localhost" or name.endswith(".localhost"):
        return False
    if name.startswith("["):
        return _is_public(ip_address(name.strip("[]")))
    if not NUMBER.fullmatch(name.rpartition(".")[2]):
        return True
    try:  # what ends with a number is an address, in any of the ways that resolvers read: 127.1, 0x7f000001
        return _is_public(IPv4Address(socket.inet_aton(name)))
    except OSError:
        return False


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and (inner := _wrapped(address)) is not None:
        return _is_public(inner)
    is_special = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    is_special = is_special or any(address in network for network in NOT_GLOBAL)
    return address.is_global and not is_special


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a host or a router on the way would make of it; None if none would."""
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in WRAPPING):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour


def _without_scheme(text: str) -> tuple[str, str]:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "", text.rstrip("/")
    if scheme.lower() not in ("https", "http"):
        raise HostRefused("A git provider is asked over https only.")
    return scheme.lower(), rest.rstrip("/")


def _checked_name(name: str) -> str:
    """Return the name without its port."""
    found = NAME_AND_PORT.fullmatch(name)
    if found is None or server_url(f"https://{name}") is None:
        raise HostRefused("The host of a git provider must be a plain name such as git.example.com.")
    return found["name"]


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        if name.startswith("["):
            raise HostRefused("The host of a git provider is not an address.") from None
        return name == "localhost"
