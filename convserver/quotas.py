"""Quotas: how much of this server a user or an agent may use, each a variable of the environment."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotas:
    """The most that one user may use; 0 for no limit. One MB is 1,000,000 bytes."""

    requests_per_minute: int = 0
    messages_per_minute: int = 0
    """Messages and recorded events, by any door."""
    conversations_per_hour: int = 0
    starts_per_hour: int = 0
    """Start tasks, including failed ones."""
    sockets: int = 0
    """Open at the same time in one process, by any door."""
    tokens: int = 0
    """API tokens that are not revoked."""
    drafts: int = 0
    """Drafts that are not empty."""
    drafts_mb: int = 0
    uploads_mb: int = 0
    stored_mb: int = 0
    """Events of all conversations, including deleted ones."""

    @classmethod
    def of_accounts_mode(cls) -> Quotas:
        """Return the defaults where several users share a server; in local mode there are no quotas."""
        return cls(
            requests_per_minute=3_000,
            messages_per_minute=6_000,
            conversations_per_hour=300,
            starts_per_hour=300,
            sockets=200,
            tokens=50,
            drafts=200,
            drafts_mb=64,
            uploads_mb=1_000,
            stored_mb=5_000,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """The most that the agent of one conversation may use, in a turn or in all; 0 for no limit."""

    turn_iterations: int = 0
    """How often a model is asked."""
    iterations: int = 0
    turn_tokens: int = 0
    tokens: int = 0
    turn_cost: float = 0.0
    """US dollars."""
    cost: float = 0.0
    turn_seconds: int = 0
    seconds: int = 0


NAMES = tuple(field.name for field in fields(Quotas))
LIMIT_NAMES = tuple(field.name for field in fields(RunLimits))
COSTS = frozenset({"turn_cost", "cost"})
"""The limits that need not be whole numbers."""
MOST = 1_000_000_000
"""The highest value of a variable."""


def none() -> dict[str, str]:
    """Return the variables for accounts mode without quotas."""
    return {variable_of(name): "0" for name in NAMES}


def variable_of(name: str) -> str:
    """Return the variable of the environment that sets this quota."""
    return f"CONVSERVER_QUOTA_{name.upper()}"


def variable_of_limit(name: str) -> str:
    """Return the variable of the environment that sets this limit of agents."""
    return f"CONVSERVER_LIMIT_{name.upper()}"
