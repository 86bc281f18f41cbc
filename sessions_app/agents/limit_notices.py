"""What people are told of a limit that is reached, and of prices that nobody knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sessions_app.agents.metering import Reached
from sessions_app.settings.run_limits import Limit, Origin, Unit

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
"""What V1 clients get beside the text."""
OPERATORS = "The server's operator has set this limit."
MENU = "in the conversation's menu, under Limits"
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
    """Return the sentence about a model that no limit of cost counts."""
    return UNPRICED.format(model=model)


def notice(reached: Reached, *, asks: bool) -> str:
    """Return the sentences about a limit: `asks` tells whether the turn waits to be resumed."""
    limit = reached.limit
    return " ".join([_what(reached), _turns_next(limit, asks) if limit.is_of_turn else _next(reached, asks)])


def _what(reached: Reached) -> str:
    limit = reached.limit
    if limit.is_of_turn:
        where = "for this message"
    elif reached.is_ancestors:
        where = "in the conversation that has started this one and in all that it has started"
    else:
        where = "in this conversation"
    return _WHAT[limit.unit].format(
        where=where, most=words(limit.unit, limit.most), used=words(limit.unit, limit.used_of(reached.used))
    )


def _turns_next(limit: Limit, asks: bool) -> str:
    goes_on = (
        "Resume it to let it go on for as much again, or stop it." if asks else "Send a message to go on."
    )
    raising = OPERATORS if limit.origin is Origin.OPERATOR else f"The limit is {_RAISED[limit.origin]}."
    return f"{goes_on} {raising}"


def _next(reached: Reached, asks: bool) -> str:
    origin = reached.limit.origin
    if origin is Origin.OPERATOR:
        return OPERATORS
    where = "in that conversation's menu, under Limits" if reached.is_ancestors else _RAISED[origin]
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
