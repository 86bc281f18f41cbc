"""Quotas: how much of this server a user or an agent may use, each a variable of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from convserver.variables import ConfigurationError, Given, whole

# Python's own reader of numbers takes `1e9`, `inf` and `nan` as well.
AMOUNT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotas:
    """The most that one user may use; 0 for no limit. One MB is 1,000,000 bytes."""

    requests_per_minute: int = 0
    messages_per_minute: int = 0  # messages and recorded events, by any door
    conversations_per_hour: int = 0
    starts_per_hour: int = 0  # start tasks, including failed ones
    sockets: int = 0  # open at the same time in one process, by any door
    tokens: int = 0  # API tokens that are not revoked
    drafts: int = 0  # drafts that are not empty
    drafts_mb: int = 0
    uploads_mb: int = 0
    stored_mb: int = 0  # events of all conversations, including deleted ones

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

    turn_iterations: int = 0  # how often a model is asked
    iterations: int = 0
    turn_tokens: int = 0
    tokens: int = 0
    turn_cost: float = 0.0  # US dollars
    cost: float = 0.0
    turn_seconds: int = 0
    seconds: int = 0


NAMES = tuple(field.name for field in fields(Quotas))
LIMIT_NAMES = tuple(field.name for field in fields(RunLimits))
COSTS = frozenset({"turn_cost", "cost"})  # the limits that need not be whole numbers


def none() -> dict[str, str]:
    """Return the variables for accounts mode without quotas."""
    return {variable_of(name): "0" for name in NAMES}


def variable_of(name: str) -> str:
    """Return the variable of the environment that sets this quota."""
    return f"CONVSERVER_QUOTA_{name.upper()}"


def variable_of_limit(name: str) -> str:
    """Return the variable of the environment that sets this limit of agents."""
    return f"CONVSERVER_LIMIT_{name.upper()}"


def quotas_of(_: str, __: str, given: Given) -> Quotas:
    """Read the quotas: each has a variable of its own. Raise ConfigurationError."""
    defaults = Quotas() if given.is_local else Quotas.of_accounts_mode()
    wanted = {each: _quota(given, variable_of(each), default=getattr(defaults, each)) for each in NAMES}
    return Quotas(**wanted)


def _quota(given: Given, name: str, *, default: int) -> int:
    text = given.environment.get(name) or str(default)
    # The highest value of a variable
    most = 1_000_000_000
    found: int = whole(0, most)(name, text, given)
    return found


def run_limits_of(_: str, __: str, given: Given) -> RunLimits:
    """Read the limits of agents: each has a variable of its own. Raise ConfigurationError."""
    counted = {
        each: _quota(given, variable_of_limit(each), default=0) for each in LIMIT_NAMES if each not in COSTS
    }
    return RunLimits(
        turn_cost=_amount(given.environment, variable_of_limit("turn_cost")),
        cost=_amount(given.environment, variable_of_limit("cost")),
        **counted,
    )


def _amount(environment: Mapping[str, str], name: str) -> float:
    text = environment.get(name) or "0"
    if not AMOUNT.fullmatch(text):
        raise ConfigurationError(
            f"{name} is {text!r}, but it must be an amount of US dollars like 2 or 0.50, at most nine digits "
            "before the point."
        )
    return float(text)
