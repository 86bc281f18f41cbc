"""What the end of an answer means for its turn, and what the user reads about it."""

from __future__ import annotations

from typing import NamedTuple

from sessions_app.agents.llm import prompts
from sessions_app.agents.llm.streams.answer import End

EARLY_MAX = 4
"""After so many answers in a row that ended early and brought nothing to run, the turn ends."""
_NOTICES = {End.LENGTH: prompts.LENGTH_NOTICE, End.FILTERED: prompts.FILTER_NOTICE}


class NextStep(NamedTuple):
    """What follows an answer."""

    goes_on: bool
    """Whether the model is asked again, also if the user has said nothing more."""
    notice: str = ""


class Endings:
    """The ends of a turn's answers: the turn goes on after some of them, and never without an end."""

    def __init__(self) -> None:
        self._early = 0

    def after(self, end: End, *, has_calls: bool, is_cut: bool, runs: bool) -> NextStep:
        """Return what follows an answer. `is_cut`: not all of its calls are complete; `runs`: some run."""
        self._early = self._early + 1 if (is_cut or end is End.PAUSED) and not runs else 0
        if self._early >= EARLY_MAX:
            return NextStep(goes_on=False, notice=prompts.EARLY_NOTICE)
        if has_calls or end is End.PAUSED:
            return NextStep(goes_on=True)
        return NextStep(goes_on=False, notice=_NOTICES.get(end, ""))
