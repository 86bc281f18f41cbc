"""Addresses of clients: their subscribers, and the operator's own networks."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@lru_cache(maxsize=4096)
def subscriber(address: str) -> str:
    """Return the network of an IPv6 subscriber, or the IPv4 address itself."""
    try:
        read = ip_address(address[:100])
    except ValueError:
        return address[:100]
    if not isinstance(read, IPv6Address):
        return address
    if read.ipv4_mapped is not None:  # as a socket for both versions shows an IPv4 client
        return str(read.ipv4_mapped)
    # Of an IPv6 address; a subscriber chooses the rest freely, and could be a new one with each request.
    network_bits = 64
    return str(IPv6Network((int(read), network_bits), strict=False))


class Networks:
    def __init__(self, *texts: str) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(text) for text in texts]

    def __contains__(self, address: str) -> bool:
        try:
            read = ip_address(address)
        except ValueError:  # a client at a Unix socket has no address
            return False
        mapped = read.ipv4_mapped if isinstance(read, IPv6Address) else None
        return any((mapped or read) in network for network in self._networks)
