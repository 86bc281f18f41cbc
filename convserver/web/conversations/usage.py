"""The tokens and cost of a conversation's agent, for its menu."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse
from django.utils.html import escape
from django.views.decorators.http import require_safe

from conversations import access
from conversations.events import ConversationRef
from convserver.rendering.text import visible
from convserver.web.pages import person
from sessions_app.agents import limit_notices, metering
from sessions_app.agents.metering import LimitState
from sessions_app.live.status import ModelTotals, model_totals_of
from sessions_app.models import ModelUse, used_in
from sessions_app.settings.run_limits import Unit

NOTHING = "No tokens used yet"
UNIT_WORDS = {Unit.ITERATIONS: " steps", Unit.TOKENS: " tokens", Unit.COST: "", Unit.SECONDS: " of work"}


@require_safe
@person
def usage(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return the tokens and the cost, what was used of limits, and by which models, as a line of text."""
    conversation = access.readable(request.user, conversation_id)
    used = [
        usage_words(model_totals_of(conversation)),
        *limit_words(metering.states_of(conversation)),
        *model_words(conversation),
    ]
    # The menu shows it as HTML, and names of models are a stranger's.
    return HttpResponse(escape(" · ".join(used)))


def model_words(conversation: ConversationRef) -> list[str]:
    """Return what each model of the conversation has used, at most ten of them."""
    rows = ModelUse.objects.of(conversation.pk).by("model").order_by("model")[:10]
    used = [(visible.name(row["model"]), used_in(row)) for row in rows]
    return [
        f"{model}: {each.prompt_tokens:,} in, {each.completion_tokens:,} out"
        for model, each in used
        if each.prompt_tokens or each.completion_tokens
    ]


def limit_words(states: Iterable[LimitState]) -> list[str]:
    """Return what was used of each limit of the conversation."""
    return [
        f"{used_words(state)}{UNIT_WORDS[state.unit]}"
        for state in states
        if state.limit is not None and not state.is_of_turn
    ]


def used_words(state: LimitState) -> str:
    """Return what was used, and of how much if there is a limit."""
    used = limit_notices.words(state.unit, state.used)
    return f"{used} of {limit_notices.words(state.unit, state.limit.most)}" if state.limit else used


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
    if 0 < cost < 0.0001:  # rounded it would be $0.0000, as if it cost nothing
        return "under $0.0001"
    return f"${cost:,.2f}" if cost >= 1 or not cost else f"${cost:.4f}"
