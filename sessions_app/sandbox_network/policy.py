"""Which conversations the operator lets reach the network from their sandbox."""

from __future__ import annotations

from enum import StrEnum


class NetworkPolicy(StrEnum):
    """The values of CONVSERVER_SANDBOX_NETWORK."""

    OFF = "off"
    """None."""
    ASK = "ask"
    """Those whose owner has switched it on."""
    ALLOWED = "allowed"
    """All but those whose owner has switched it off."""
