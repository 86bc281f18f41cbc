"""The way of a program that makes its own connections, such as git, to a server that a user has named."""

from __future__ import annotations

from typing import NamedTuple

import httpx
from django.conf import settings

from sessions_app.outbound.hosts import allowed_addresses, require_public
from sessions_app.outbound.proxies import proxy_of


class ProgramWay(NamedTuple):
    """How a program reaches one server, and no other."""

    proxy: str = ""
    """The URL of the configured proxy; empty for none."""
    addresses: tuple[str, ...] = ()
    """The addresses that were checked, to which the program is pinned; empty if it may look for them."""


async def way_of(url: httpx.URL) -> ProgramWay:
    """Return the way to the server of this URL. Raise HostRefused if it may not be asked."""
    # A proxy would read what is sent without TLS.
    if url.scheme == "https" and (proxy := proxy_of(url)) is not None:
        await require_public(url)
        return ProgramWay(proxy=proxy)
    if settings.CONFIGURATION.auth == "accounts":
        # A second look-up may lead elsewhere.
        return ProgramWay(addresses=tuple(await allowed_addresses(url)))
    return ProgramWay()
