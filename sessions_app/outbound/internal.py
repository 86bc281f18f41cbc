"""The operator's list of internal addresses that users of an accounts server may name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Self

LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
ENTRY = re.compile(
    rf"(?:\[(?P<bracketed>[0-9a-f:./]+)\]|(?P<plain>[0-9./]+|{LABEL}(?:\.{LABEL})*))(?::(?P<port>[0-9]{{1,5}}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class InternalAddress:
    """One entry: a host name or a network, at one port or at any."""

    name: str | None
    network: IPv4Network | IPv6Network | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `name`, `address` or `network`, each with `:port` or without. Raise ValueError.

        An IPv6 address with a port stands in brackets.
        """
        text = text.strip().lower()
        if text.count(":") > 1 and not text.startswith("["):
            return cls(None, _network(text), None)
        found = ENTRY.fullmatch(text)
        if found is None:
            raise ValueError("this is no host name, address or network")
        port = int(found["port"]) if found["port"] else None
        if port is not None and not 0 < port <= 65_535:
            raise ValueError("this is no port")
        place = found["bracketed"] or found["plain"]
        # A text that ends with a number is an address to every resolver, never a name.
        if found["bracketed"] or "/" in place or place.rpartition(".")[2].isdigit():
            return cls(None, _network(place), port)
        return cls(place, None, port)

    def admits_name(self, name: str, port: int) -> bool:
        """Return whether the operator allows this name, whatever its address."""
        return self.name == name and self.port in (None, port)

    def admits_address(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        """Return whether this address may be asked under any name."""
        return self.network is not None and address in self.network and self.port in (None, port)


def parse_all(texts: Iterable[str]) -> tuple[InternalAddress, ...]:
    return tuple(dict.fromkeys(InternalAddress.parse(text) for text in texts))


def _network(text: str) -> IPv4Network | IPv6Network:
    network = ip_network(text)
    # A list of every address would protect nothing.
    if network.prefixlen == 0:
        raise ValueError("this network holds every address")
    return network
