"""Connections that a sandbox asks for: checked by the outbound guard, and made from outside.

Only bytes of the sandbox go out, and nothing of the server's: no key, no cookie, no variable.
"""

from __future__ import annotations

import asyncio
import re
import socket
from base64 import b64encode
from ipaddress import ip_address
from typing import NamedTuple

import h11
import httpx

from sessions_app.outbound import hosts, proxies
from sessions_app.outbound.hosts import HostRefused
from sessions_app.sandbox_network.sides import HttpSide

# Web servers. Others would let a sandbox send mail, or log in to machines, as if it were the server.
PORTS = (80, 443)
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}", re.ASCII)


class ProxyRefusal(Exception):
    """A request of a sandbox is refused; the text is for the people and models that read its output."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RemoteConnection(NamedTuple):
    """An open connection to a server."""

    socket: socket.socket
    early: bytes = b""
    """What the server has sent already."""


def tunnel_url(target: bytes) -> httpx.URL:
    """Return the URL of what CONNECT names, as a host and a port. Raise ProxyRefusal."""
    text = target.decode("latin-1")
    url = hosts.server_url(f"https://{text}") if _AUTHORITY.fullmatch(text) else None
    if url is None:
        raise ProxyRefusal(400, "CONNECT needs a host and a port, for example example.org:443.")
    return url


def plain_url(target: bytes) -> httpx.URL:
    """Return the URL of a request without a tunnel. Raise ProxyRefusal."""
    url = hosts.server_url(target.decode("latin-1"))
    if url is None or url.scheme != "http":
        raise ProxyRefusal(
            400, "This is an HTTP proxy. It takes CONNECT, and requests for http://, with the whole address."
        )
    return url


async def connected(url: httpx.URL) -> RemoteConnection:
    """Connect to the server at a URL, unless a sandbox may not reach it. Raise ProxyRefusal."""
    within_s = 20.0
    port = hosts.port_of(url)
    if port not in PORTS and not hosts.is_listed(url, with_port=True):
        raise ProxyRefusal(
            403,
            f"Port {port} is not allowed: a sandbox reaches the ports {' and '.join(map(str, PORTS))}. The "
            "server's administrator can allow another one of a host (CONVSERVER_INTERNAL_ADDRESSES).",
        )
    try:
        async with asyncio.timeout(within_s):
            # What is not encrypted goes past the operator's proxy, as all requests of the server do.
            proxy = proxies.proxy_of(url) if url.scheme == "https" else None
            if proxy is not None:
                # A name that is unknown here may be one of the proxy's own network.
                is_public = await hosts.require_public(url, is_strict=True)
                if not is_public and not hosts.is_listed(url):
                    raise HostRefused(
                        f"This server does not know {url.host}, and so not whether it is public."
                    )
                return await _tunnelled(proxy, url)
            return RemoteConnection(await _dialled_any(await _checked(url, port), port))
    except HostRefused as error:
        raise ProxyRefusal(403, str(error)) from None
    except TimeoutError:
        raise ProxyRefusal(504, "The server did not take the connection in time.") from None
    except OSError as error:
        raise ProxyRefusal(502, f"The connection failed: {error.strerror or error}.") from None


async def _checked(url: httpx.URL, port: int) -> list[str]:
    """Return the addresses of a server that a sandbox may reach. Raise HostRefused."""
    found = await hosts.allowed_addresses(url)
    if hosts.is_listed(url):
        return found
    # A public address may be this machine's own. What listens there is behind a firewall that does not see
    # connections from inside. An address that is not public is one that the operator lists.
    if any(ip_address(each).is_global and _is_own(each, port) for each in found):
        raise HostRefused(hosts.NOT_ALLOWED)
    return found


def _is_own(address: str, port: int) -> bool:
    """Return whether an address is this machine's: then the way there begins at it. Nothing is sent."""
    with socket.socket(_family_of(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, port))
        except OSError:  # there is no way there
            return False
        return ip_address(probe.getsockname()[0]) == ip_address(address)


async def _dialled_any(addresses: list[str], port: int) -> socket.socket:
    """Connect to the first address that can be reached. Raise OSError."""
    *others, last = addresses
    tried_most = 4
    for address in others[: tried_most - 1]:
        try:
            return await _dialled(address, port)
        except OSError:
            continue
    return await _dialled(last, port)


async def _dialled(address: str, port: int) -> socket.socket:
    found = socket.socket(_family_of(address), socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(proxies.CONNECT_S):
            await asyncio.get_running_loop().sock_connect(found, (address, port))
    except BaseException:
        found.close()
        raise
    return found


def _family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


async def _tunnelled(proxy: str, url: httpx.URL) -> RemoteConnection:
    """Connect by the operator's proxy, which looks the name up again. Raise ProxyRefusal or OSError."""
    way = hosts.server_url(proxy)
    if way is None or way.scheme != "http":
        raise ProxyRefusal(502, "The server's own proxy can't be used by sandboxes: it is no http:// proxy.")
    loop, port = asyncio.get_running_loop(), hosts.port_of(way)
    found = await loop.getaddrinfo(way.raw_host.decode("ascii"), port, type=socket.SOCK_STREAM)
    opened = await _dialled_any([str(place[0]) for *_, place in found], port)
    try:
        host = url.raw_host.decode("ascii")
        target = f"{f'[{host}]' if ':' in host else host}:{hosts.port_of(url)}"
        headers = [("Host", target)]
        if way.userinfo:
            account = b64encode(f"{way.username}:{way.password}".encode()).decode("ascii")
            headers.append(("Proxy-Authorization", f"Basic {account}"))
        side = HttpSide(opened, h11.CLIENT)
        await side.send(h11.Request(method="CONNECT", target=target, headers=headers))
        answer = await side.received()
        ok, beyond = 200, 300
        if not isinstance(answer, h11.Response) or not ok <= answer.status_code < beyond:
            raise ProxyRefusal(502, "The server's own proxy refuses the connection.")
        return RemoteConnection(opened, side.http.trailing_data[0])
    except BaseException as error:
        opened.close()
        if isinstance(error, h11.RemoteProtocolError):
            raise ProxyRefusal(502, "The server's own proxy gave no valid answer.") from None
        raise
