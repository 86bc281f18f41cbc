"""The sentences for people about limits that are reached, and about unknown prices."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sessions_app.agents.metering import Reached
from sessions_app.settings.run_limits import Origin, Unit

_WHAT: Final = {
    Unit.ITERATIONS: "The agent has taken {most} steps {where}, which is the limit.",
    Unit.TOKENS: "The models have used {used} tokens {where}; the limit is {most}.",
    Unit.COST: "The models have cost {used} {where}; the limit is {most}.",
    Unit.SECONDS: "The agent has worked for {most} {where}, which is the limit.",
}
CODES: Final = {
    Unit.ITERATIONS: "MaxIterationsReached",
    Unit.TOKENS: "MaxBudgetReached",
    Unit.COST: "MaxBudgetReached",
    Unit.SECONDS: "MaxTimeReached",
}
"""The codes for V1 clients."""
OPERATORS = "The server's operator has set this limit."
MENU = "in the conversation's menu, under Limits"
# Where each limit can be raised: the options of a conversation come before all others but the operator's.
_RAISED: Final = {
    Origin.OPTION: MENU,
    Origin.START: MENU,
    Origin.DEFAULT: MENU,
    Origin.SETTINGS: f"{MENU}, or for all conversations in Settings",
}
UNPRICED = "The price of the model {model} is unknown: the cost limit does not count it."
CALL_ENDED = (
    "The call was ended: the agent has reached the limit of its working time. What the call has done by then "
    "is unknown."
)


def unpriced(model: str) -> str:
    """Return the sentence about a model without a known price."""
    return UNPRICED.format(model=model)


def notice(reached: Reached, *, asks: bool) -> str:
    """Return the sentences about a limit; with `asks` the turn waits until the user resumes it."""
    limit = reached.limit
    if limit.is_of_turn:
        where = "for this message"
    elif reached.is_ancestors:
        where = "in the conversation that has started this one and in all that it has started"
    else:
        where = "in this conversation"
    most, used = words(limit.unit, limit.most), words(limit.unit, limit.used_of(reached.used))
    return f"{_WHAT[limit.unit].format(where=where, most=most, used=used)} {_next(reached, asks)}"


def _next(reached: Reached, asks: bool) -> str:
    """Return the sentences about how to go on."""
    limit, is_operators = reached.limit, reached.limit.origin is Origin.OPERATOR
    if limit.is_of_turn:
        resume = "Resume it to let it go on for as much again, or stop it."
        raising = OPERATORS if is_operators else f"The limit is {_RAISED[limit.origin]}."
        return f"{resume if asks else 'Send a message to go on.'} {raising}"
    if is_operators:
        return OPERATORS
    where = "in that conversation's menu, under Limits" if reached.is_ancestors else _RAISED[limit.origin]
    return f"To go on, raise it {where}, and {'resume the agent' if asks else 'send a message'}."


def words(unit: Unit, amount: float) -> str:
    """Return an amount as people read it."""
    match unit:
        case Unit.COST:
            return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
        case Unit.SECONDS:
            return str(timedelta(seconds=round(amount)))
        case Unit.ITERATIONS | Unit.TOKENS:
            return f"{round(amount):,}"
