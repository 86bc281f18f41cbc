"""The ends of answers: whether the turn continues, and the notice for the user."""

from __future__ import annotations

from typing import NamedTuple

from sessions_app.agents.llm import prompts
from sessions_app.agents.llm.streams.answer import End

# Successive answers that ended early without a call to run; after these the turn would go on endlessly.
EARLY_MAX = 4
_NOTICES = {End.LENGTH: prompts.LENGTH_NOTICE, End.FILTERED: prompts.FILTER_NOTICE}


class NextStep(NamedTuple):
    """The step after an answer."""

    goes_on: bool
    """Whether to ask the model again, also without a new message."""
    notice: str = ""


class Endings:
    """Counts the early ends of a turn's answers, so that it does not continue endlessly."""

    def __init__(self) -> None:
        self._early = 0

    def after(self, end: End, *, has_calls: bool, is_cut: bool, runs: bool) -> NextStep:
        """Return the next step. `is_cut`: some calls are incomplete; `runs`: some calls run."""
        self._early = self._early + 1 if (is_cut or end is End.PAUSED) and not runs else 0
        if self._early >= EARLY_MAX:
            return NextStep(goes_on=False, notice=prompts.EARLY_NOTICE)
        if has_calls or end is End.PAUSED:
            return NextStep(goes_on=True)
        return NextStep(goes_on=False, notice=_NOTICES.get(end, ""))
