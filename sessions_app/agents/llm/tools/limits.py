"""How long a turn may go on by itself: a number of steps, and no endless repetition."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from conversations.events import EventEnvelope, Kind
from conversations.models import ConversationRef
from sessions_app.models import AgentSetup, UserSettings
from sessions_app.models.v1 import MAX_ITERATIONS

REPEATED_MAX = 4
"""The same call with the same result so many times in a turn is one that gets nowhere."""
POLLED_S = 5.0
"""Calls with this much time between them wait for something."""
TOO_MANY = (
    "The agent has taken {most} steps for this message, which is the limit. {next} "
    "The limit is in Settings, as the greatest number of iterations."
)
REPEATS = "The agent repeats itself: it has called `{name}` {count} times with the same result. {next}"
ASKS = "Resume it to let it go on, or stop it."
ENDS = "Send a message to let it go on."


class Limits(NamedTuple):
    """The limits of a conversation's turns."""

    max_steps: int = MAX_ITERATIONS
    """How often a model is asked."""
    detects_repetition: bool = True


def limits_of(conversation: ConversationRef) -> Limits:
    """Return the limits that the conversation's start or its owner has set."""
    setup = AgentSetup.objects.filter(pk=conversation.pk).only("max_iterations", "stuck_detection").first()
    owned = UserSettings.objects.filter(pk=conversation.owner_id).values_list("max_iterations", flat=True)
    own = owned.first() or MAX_ITERATIONS
    if setup is None:
        return Limits(max(own, 1))
    # A start that names no limit leaves the default.
    started = setup.max_iterations if setup.max_iterations != MAX_ITERATIONS else own
    return Limits(max(started, 1), setup.stuck_detection)


class Steps:
    """The steps of a turn that has reached no limit yet."""

    def __init__(
        self, limits: Limits, done: Sequence[EventEnvelope], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`done` is what the turn has stored before: a turn that goes on after its limit counts anew."""
        self._limits = limits
        self._now = now
        self._taken = _calls_since(done, notice(limits.max_steps))
        self._last: tuple[str, float] = ("", 0.0)
        self._repeated = 0

    @property
    def is_over(self) -> bool:
        """Say whether the limit is reached."""
        return self._taken >= self._limits.max_steps

    def take(self) -> None:
        """Count a step."""
        self._taken += 1

    def repeats(self, name: str, arguments: Mapping[str, Any], result: str) -> bool:
        """Say whether a call with this result is one of too many."""
        key = json.dumps([name, arguments, result], sort_keys=True, default=str)
        (last, at), now = self._last, self._now()
        is_again = key == last and now - at < POLLED_S
        self._repeated = self._repeated + 1 if is_again else 1
        self._last = key, now
        return self._limits.detects_repetition and self._repeated >= REPEATED_MAX


def notice(max_steps: int, *, asks: bool = True) -> str:
    """Return the sentence about a turn with so many steps."""
    return TOO_MANY.format(most=max_steps, next=ASKS if asks else ENDS)


def repetition(name: str, *, asks: bool = True) -> str:
    """Return the sentence about a call that was repeated."""
    return REPEATS.format(name=name, count=REPEATED_MAX, next=ASKS if asks else ENDS)


def _calls_since(done: Sequence[EventEnvelope], told: str) -> int:
    since = [number for number, event in enumerate(done) if told in event["text"]]
    rest = done[since[-1] + 1 :] if since else done
    return sum(event["kind"] == Kind.TOOL_CALL for event in rest)
