"""The limits of one conversation's agent: what was used of each, and the form that changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django import forms
from django.forms import BoundField
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from convserver.api.native.run_options import COUNT_MAX
from convserver.web.conversations.options import options_page
from convserver.web.conversations.usage import used_words
from convserver.web.pages import person
from sessions_app.agents import limit_notices, metering
from sessions_app.agents.metering import LimitState
from sessions_app.settings import run_limits
from sessions_app.settings.run_limits import Origin, Unit

COST_MAX = 1_000_000
TITLES = {
    Unit.ITERATIONS: "Steps",
    Unit.TOKENS: "Tokens",
    Unit.COST: "Cost (US dollars)",
    Unit.SECONDS: "Working time (seconds)",
}
EXPLAINED = {
    Unit.ITERATIONS: "How often a model is asked.",
    Unit.TOKENS: "What models read and write.",
    Unit.COST: "Models whose price is unknown don't count.",
    Unit.SECONDS: "While the agent works, not while it waits for you.",
}


def field_of(unit: Unit) -> forms.Field:
    """Return a field for an amount, which may be left empty."""
    if unit is Unit.COST:
        return forms.FloatField(
            required=False, min_value=0, max_value=COST_MAX, widget=forms.NumberInput(attrs={"step": "any"})
        )
    return forms.IntegerField(required=False, min_value=1, max_value=COUNT_MAX)


class ConversationLimitsForm(forms.Form):
    """All limits of a conversation; an empty field leaves the default."""

    def __init__(
        self,
        states: list[LimitState],
        data: Mapping[str, str] | None = None,
        *,
        initial: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(data, initial=initial, auto_id="limit-%s")
        for state in states:
            field = self.fields[f"max_{state.name}"] = field_of(state.unit)
            field.label = "Per message" if state.is_of_turn else "Whole conversation"
            field.help_text = help_of(state)
            field.widget.attrs["placeholder"] = default_of(state)
        self._states = states

    def rows(self) -> list[LimitRow]:
        """Return the fields by what they limit."""
        by_unit: dict[Unit, list[BoundField]] = {}
        for state in self._states:
            by_unit.setdefault(state.unit, []).append(self[f"max_{state.name}"])
        return [LimitRow(TITLES[unit], EXPLAINED[unit], fields) for unit, fields in by_unit.items()]


class LimitRow(NamedTuple):
    title: str
    explained: str
    fields: list[BoundField]


def help_of(state: LimitState) -> str:
    """Return what was used of a limit, and its origin if that is not this conversation."""
    whose = {
        Origin.START: " Set when the conversation was started.",
        Origin.SETTINGS: " From your settings.",
        Origin.OPERATOR: " At most that, by the server's operator.",
    }
    scope = "in the newest turn" if state.is_of_turn else "so far"
    used = f"{used_words(state)} used {scope}."
    return used + (whose.get(state.limit.origin, "") if state.limit else "")


def default_of(state: LimitState) -> str:
    """Return the limit that counts while the field is empty, if known."""
    if state.limit is None:
        return "no limit"
    is_own = state.limit.origin is Origin.OPTION
    return "" if is_own else limit_notices.words(state.unit, state.limit.most).removeprefix("$")


@require_http_methods(["GET", "HEAD", "POST"])
@person
def limits(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show the limits with what was used of them, or change them."""
    return options_page(
        request,
        conversation_id,
        name="limits",
        options=[f"max_{name}" for name in run_limits.NAMES],
        form_of=lambda conversation, **values: ConversationLimitsForm(
            metering.states_of(conversation), **values
        ),
        saved="Limits saved. They count from the next turn on, and for a turn that you resume.",
    )
