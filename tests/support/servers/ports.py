"""Ports for the servers that tests start."""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from contextlib import suppress

FIRST = int(os.environ.get("CONVSERVER_TEST_FIRST_PORT", 20_000))
PORTS = range(FIRST, FIRST + 2_000)
"""Below those of outgoing connections. Each run of `make test` has others, so that none takes the port of
another's server while that is down."""


_given: deque[int] = deque(maxlen=len(PORTS) // 4)
"""The ports that were given out last: whoever has one may not listen there yet."""


def free_port() -> int:
    """Return a port that nobody uses now or was given lately, and no outgoing connection will use."""
    while True:
        port = secrets.choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.append(port)
            return port
