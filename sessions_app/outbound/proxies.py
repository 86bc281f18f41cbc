"""The transport to a server that a user has named: by the configured proxy, or directly."""

from __future__ import annotations

import ssl
from functools import cache
from urllib.request import getproxies, proxy_bypass

import httpx
from django.conf import settings

from sessions_app.outbound.hosts import (
    NOT_ALLOWED,
    HostRefused,
    allowed_addresses,
    require_public,
    server_url,
)

CONNECT_S = 5.0
"""A server that a user has named takes a connection within this time."""
READ_S = 10.0
"""It sends more of its answer within this time."""
TOTAL_S = 15.0
"""A question from a page, with its queue, redirects and all of the answer, takes at most this long."""


class UnusableProxy(Exception):
    """The configured proxy cannot be used; the text has the reason."""

    def __init__(self) -> None:
        super().__init__("The proxy configured for this server can't be used.")


def way_to(url: httpx.URL, *, is_operators: bool = False) -> httpx.AsyncHTTPTransport:
    """Return a transport for the server at this URL, and no other. Raise UnusableProxy.

    With accounts, requests raise HostRefused unless the addresses may be asked (`hosts`), or the server's
    operator named the URL.
    """
    # A proxy would read what is sent without TLS.
    proxy = proxy_of(url) if url.scheme == "https" else None
    if proxy is not None:
        if not proxy.startswith("socks") and server_url(proxy) is None:
            raise UnusableProxy
        way = httpx.AsyncHTTPTransport if is_operators else _ProxyWay
        try:
            return way(proxy=proxy, verify=_tls())
        except (ImportError, ValueError, httpx.InvalidURL) as error:  # SOCKS needs a library of its own
            raise UnusableProxy from error
    if not is_operators and settings.CONFIGURATION.auth == "accounts":
        return _GuardedWay(verify=_tls())
    return httpx.AsyncHTTPTransport(verify=_tls())


class _GuardedWay(httpx.AsyncHTTPTransport):
    """Connects directly to the addresses that were checked: a second look-up may lead elsewhere."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Ask at the first address that can be reached."""
        *others, last = await allowed_addresses(request.url)
        for address in others:
            try:
                return await super().handle_async_request(_sent_to(address, request))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await super().handle_async_request(_sent_to(last, request))


class _ProxyWay(httpx.AsyncHTTPTransport):
    """Goes through a proxy, which looks names up for itself; only what is known here can be checked."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, unless the name is known to lead inside."""
        is_known = await require_public(request.url)
        try:
            return await super().handle_async_request(request)
        except (httpx.ProxyError, httpx.ConnectError):
            if is_known:
                raise
            # A name that the proxy does not know either gets the answer for internal names.
            raise HostRefused(NOT_ALLOWED) from None


def _sent_to(address: str, request: httpx.Request) -> httpx.Request:
    """Return the request for a literal address; header and certificate are still those of the name."""
    # `sni_hostname` also is the name that the certificate must have.
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.raw_host.decode("ascii")},
    )


def proxy_of(url: httpx.URL) -> str | None:
    """Return the address of the operator's proxy for a URL; None for a direct connection."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@cache  # loading the certificates takes longer than many requests
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()
