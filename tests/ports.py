"""Ports for the servers that tests start."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress

FIRST = int(os.environ.get("CONVSERVER_TEST_FIRST_PORT", 20_000))
PORTS = range(FIRST, FIRST + 2_000)
"""Below those of outgoing connections. Each run of `make test` has others, so that none takes the port of
another's server while that is down."""


def free_port() -> int:
    """Return a port that nobody uses now, and no outgoing connection will."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
