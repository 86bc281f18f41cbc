"""Hosts that users have named, checked before a token is sent there."""

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
# Wider than what a git host may be named: any name that resolvers accept, or an IPv6 address.
SERVER = re.compile(rb"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
# One sentence for internal and for unknown hosts: two would tell users which internal names exist.
NOT_ALLOWED = (
    "No public address was found for this host. Check its name. The server's administrator can allow a host "
    "of an internal network."
)
# Names that no public host has; one without a dot is looked up in the server's own domains.
INTERNAL_NAMES = re.compile(r"(?:.*\.)?(?:localhost|localdomain|local|internal|home\.arpa)|[^.]*", re.ASCII)
# Networks whose addresses end with the IPv4 address that they stand for.
WRAPPING = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
# The third quarter of IPv6 addresses that end with the IPv4 address to which they are sent.
ISATAP = (0x0000_5EFE, 0x0200_5EFE)
# Networks of protocols, retired relays and examples, which some versions of `is_global` leave out.
NOT_GLOBAL = tuple(
    map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "64:ff9b:1::/48", "5f00::/16"))
)
# Public addresses that are answered inside a cloud: the host of an Azure machine, which serves its setup,
# and the inner services of IBM Cloud. Those of other providers are in private networks.
PROVIDERS = tuple(map(ip_network, ("168.63.129.16/32", "161.26.0.0/16", "166.8.0.0/14")))
SOCKET_SCHEME = re.compile(r"^ws(?=s?://)", re.IGNORECASE)
PIECE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)

Address = IPv4Address | IPv6Address


class HostRefused(Exception):
    """This host is invalid, or this server may not ask it; the text has the reason, without the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A host that may be asked: over HTTPS, or plain HTTP on this machine and where the operator lists it."""

    scheme: str
    name: str
    """With its port, if it has one of its own."""
    path: str = ""

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.name}"


def parse_host(text: str | None, *, public: str, takes_path: bool = False) -> Host:
    """Parse a host as users write it: `name`, `name:port` or `https://name`; without a text, the public one.

    `takes_path` allows a path behind it. Plain HTTP is for loopback addresses, which get it without a
    scheme, and for hosts that the operator lists. Raise HostRefused for other ones and as
    `require_allowed` does; the error does not repeat the text, which may hold a password.
    """
    scheme, rest = _without_scheme((text or "").strip() or public)
    name, _, path = rest.partition("/")
    name = name.lower()
    url = server_url(f"{scheme or 'https'}://{name}") if NAME_AND_PORT.fullmatch(name) else None
    if url is None:
        raise HostRefused("The host of a git provider must be a plain name such as git.example.com.")
    require_allowed(url)
    is_loopback = _is_loopback(url)
    if scheme == "http" and not is_loopback and not is_listed(url):
        raise HostRefused("A git provider is asked over https only, except on this machine itself.")
    if path and not (takes_path and all(PIECE.fullmatch(piece) for piece in path.split("/"))):
        raise HostRefused("The host of a git provider must stand alone, without a path.")
    is_plain = scheme == "http" or (is_loopback and not scheme)
    return Host(scheme="http" if is_plain else "https", name=name, path=path)


def server_url(text: str) -> httpx.URL | None:
    """Parse the URL of a server that can be asked over HTTP; return None for any other text."""
    try:
        url = httpx.URL(text.strip())
        host = url.host  # decoded for people, which fails for some xn-- names
    except (httpx.InvalidURL, UnicodeError):
        return None
    has_port = url.port is None or 0 < url.port <= 65_535
    has_name = host and len(url.raw_host) <= NAME_MAX_CHARS and SERVER.fullmatch(url.raw_host)
    return url if url.scheme in ("http", "https") and has_name and has_port else None


def require_allowed(url: httpx.URL) -> None:
    """Refuse an internal host when a URL is entered, as far as it is visible without a look-up of its name.

    With accounts, users must not reach what only the server's machine or network should, unless the
    operator lists it (CONVSERVER_INTERNAL_ADDRESSES). Names are looked up for each request, since their
    addresses may change. Raise HostRefused.
    """
    if settings.CONFIGURATION.auth != "accounts" or is_listed(url):
        return
    try:
        address = _literal(url)
    except ValueError:
        raise HostRefused(NOT_ALLOWED) from None
    is_internal = INTERNAL_NAMES.fullmatch(_name(url)) if address is None else not _is_public(address)
    if is_internal:
        raise HostRefused(NOT_ALLOWED)


def require_allowed_text(text: str) -> None:
    """Refuse a text that a user enters as a URL, also one of a socket, as `require_allowed` does.

    Other texts pass, since they cannot be asked. Raise HostRefused.
    """
    url = server_url(SOCKET_SCHEME.sub("http", text.strip()))
    if url is not None:
        require_allowed(url)


def is_listed(url: httpx.URL, *, with_port: bool = False) -> bool:
    """Return whether the operator lists the host of a URL itself, by its name or as an address.

    `with_port` asks for an entry that names the port, too.
    """
    port = port_of(url)
    try:
        address = _literal(url)
    except ValueError:
        return False
    if address is not None:
        return _is_admitted(address, port, with_port=with_port)
    name = _name(url)
    entries = settings.CONFIGURATION.internal_addresses
    return any(each.admits_name(name, port) and (each.port or not with_port) for each in entries)


async def require_public(url: httpx.URL, *, is_strict: bool = False) -> bool:
    """Look up the host of a URL that is asked through a proxy, which looks it up for itself.

    Return False for a name without an address here, which the proxy may know. Raise HostRefused. Without
    accounts, only an `is_strict` call looks.
    """
    if settings.CONFIGURATION.auth != "accounts" and not is_strict:
        return True
    with suppress(OSError):
        await _looked_up(url)
        return True
    return False


async def allowed_addresses(url: httpx.URL) -> list[str]:
    """Look up the addresses of a URL. Raise HostRefused unless all may be asked, or if there is none."""
    try:
        return await _looked_up(url)
    except OSError:
        raise HostRefused(NOT_ALLOWED) from None


async def _looked_up(url: httpx.URL) -> list[str]:
    require_allowed(url)
    # As the client will encode it: the resolver's own encoding of non-ASCII letters is older.
    name, port = url.raw_host, port_of(url)
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    addresses = [str(place[0]) for *_, place in found]
    parsed = [ip_address(address.partition("%")[0]) for address in addresses]  # `%` begins an interface
    # All of them: the client may connect to any.
    if not is_listed(url) and not all(_is_public(each) or _is_admitted(each, port) for each in parsed):
        raise HostRefused(NOT_ALLOWED)
    return addresses


def port_of(url: httpx.URL) -> int:
    return url.port or (80 if url.scheme == "http" else 443)


def _name(url: httpx.URL) -> str:
    """Return the host's name as resolvers compare it: in ASCII, without the dot at its end."""
    return url.raw_host.decode("ascii").lower().removesuffix(".")


def _literal(url: httpx.URL) -> Address | None:
    """Return the address that a host is written as, None for a name. Raise ValueError for neither."""
    name = _name(url)
    if ":" in name:
        return ip_address(name)
    # A text that ends with a number is an address, in any form that resolvers read: 127.1, 0x7f000001.
    if not NUMBER.fullmatch(name.rpartition(".")[2]):
        return None
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        raise ValueError("this is no address") from None


def _is_admitted(address: Address, port: int, *, with_port: bool = False) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    entries = settings.CONFIGURATION.internal_addresses
    return any(
        each.admits_address(mapped or address, port) and (each.port or not with_port) for each in entries
    )


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (inner := _wrapped(address)) is not None:
        return _is_public(inner)
    is_special = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    is_special = is_special or any(address in network for network in (*NOT_GLOBAL, *PROVIDERS))
    return address.is_global and not is_special


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address to which a host or a router would translate it; None without one."""
    if address.teredo is not None:
        return address.teredo[1]
    number = int(address)
    if any(address in network for network in WRAPPING) or (number >> 32) & 0xFFFF_FFFF in ISATAP:
        return IPv4Address(number & 0xFFFF_FFFF)
    return address.sixtofour


def _without_scheme(text: str) -> tuple[str, str]:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "", text.rstrip("/")
    if scheme.lower() not in ("https", "http"):
        raise HostRefused("A git provider is asked over https only.")
    return scheme.lower(), rest.rstrip("/")


def _is_loopback(url: httpx.URL) -> bool:
    name = _name(url)
    try:
        return ip_address(name).is_loopback
    except ValueError:
        if ":" in name:
            raise HostRefused("The host of a git provider is not an address.") from None
        return name == "localhost"
