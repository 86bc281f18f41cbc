"""What a conversation's models have used, for its menu."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from conversations import access
from convserver.web.pages import person
from sessions_app.live.status import ModelTotals, model_totals_of

NOTHING = "No tokens used yet"
LEAST_DOLLARS = 0.0001


@require_safe
@person
def usage(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return the tokens and the cost as a line of text."""
    totals = model_totals_of(access.readable(request.user, conversation_id))
    return HttpResponse(usage_words(totals), content_type="text/plain; charset=utf-8")


def usage_words(totals: ModelTotals) -> str:
    """Return totals in words."""
    read, written = totals["prompt_tokens"], totals["completion_tokens"]
    if not (read or written or totals["has_unpriced_calls"]):
        return NOTHING
    return f"{read:,} tokens in, {written:,} out · {_cost(totals)}"


def _cost(totals: ModelTotals) -> str:
    cost = totals["cost"]
    if not totals["has_unpriced_calls"]:
        return dollars(cost)
    return f"{dollars(cost)} and calls of unknown cost" if cost else "cost unknown"


def dollars(cost: float) -> str:
    """Return an amount of US dollars, small ones with more digits."""
    if 0 < cost < LEAST_DOLLARS:
        return f"under ${LEAST_DOLLARS}"
    return f"${cost:,.2f}" if cost >= 1 or not cost else f"${cost:.4f}"
