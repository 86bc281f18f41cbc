"""The position of a loop in its turn and the requests to it, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final


class Stage(Enum):
    WAITING = auto()
    """No turn: the loop starts, waits for something to do, or cleans up."""
    PREPARING = auto()
    """A turn has begun, and the agent does not play it yet."""
    PLAYING = auto()
    """The agent plays, in a task of its own."""
    ENDING = auto()
    """The agent is done, and the end of the turn is being stored."""


class PauseRequest(Enum):
    """The state of a request to pause."""

    NONE = auto()
    """There is none, or it has taken effect."""
    WANTED = auto()
    """It takes effect between two steps of the turn, or after it."""
    TAKEN_BACK = auto()
    """It was cancelled while the turn may have been about to pause: then the turn continues at once."""


class Interruption(Enum):
    """Whether the turn under way was interrupted, by a request or by a message."""

    NONE = auto()
    WANTED = auto()
    """The turn ends; that pauses a V1 conversation."""
    RESUMED = auto()
    """The turn ends, and then its conversation is resumed."""
    SUPERSEDED = auto()
    """The turn ends for a message, which the next turn answers."""


class Stay(Enum):
    STAYS = auto()
    LEAVES = auto()
    """It ends as soon as there is nothing to do."""
    ENDS = auto()
    """Its task was cancelled; cancelling it twice would interrupt the cleanup."""


State = Stage | PauseRequest | Interruption | Stay

TRANSITIONS: Final[Mapping[State, Set[State]]] = {
    Stage.WAITING: {Stage.PREPARING},
    Stage.PREPARING: {Stage.PLAYING, Stage.WAITING},
    Stage.PLAYING: {Stage.ENDING},
    Stage.ENDING: {Stage.WAITING},
    PauseRequest.NONE: {PauseRequest.NONE, PauseRequest.WANTED},
    PauseRequest.WANTED: {PauseRequest.NONE, PauseRequest.WANTED, PauseRequest.TAKEN_BACK},
    PauseRequest.TAKEN_BACK: {PauseRequest.NONE, PauseRequest.WANTED, PauseRequest.TAKEN_BACK},
    Interruption.NONE: {Interruption.WANTED, Interruption.SUPERSEDED},
    Interruption.WANTED: {Interruption.NONE, Interruption.WANTED, Interruption.RESUMED},
    Interruption.RESUMED: {Interruption.NONE, Interruption.WANTED, Interruption.RESUMED},
    Interruption.SUPERSEDED: {Interruption.NONE, Interruption.WANTED},
    Stay.STAYS: {Stay.LEAVES, Stay.ENDS},
    Stay.LEAVES: {Stay.LEAVES, Stay.ENDS},
    Stay.ENDS: set(),
}
"""The states that may follow each; one that may follow itself can be requested again."""

INTERRUPTIBLE: Final[Set[Stage]] = {Stage.PREPARING, Stage.PLAYING}
"""The stages of a turn whose agent is not done."""

_FIELDS: Final[Mapping[type[Enum], str]] = {
    Stage: "stage",
    PauseRequest: "pause",
    Interruption: "interruption",
    Stay: "stay",
}


class ForbiddenTransition(Exception):
    """A loop was to enter a state that must not follow the present one: a mistake of the server."""

    def __init__(self, before: State, after: State) -> None:
        super().__init__(f"{after} must not follow {before}.")


def require_allowed(before: State, after: State) -> None:
    if after not in TRANSITIONS[before]:
        raise ForbiddenTransition(before, after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Steering:
    """The four states of a loop, and the inputs that were given up.

    Each method returns the next value, and raises ForbiddenTransition if it must not follow this one.
    """

    stage: Stage = Stage.WAITING
    pause: PauseRequest = PauseRequest.NONE
    interruption: Interruption = Interruption.NONE
    interrupted_through: int | None = None
    """The newest input when the user interrupted the turn under way: inputs up to it are given up."""
    stay: Stay = Stay.STAYS
    given_up_through: int | None = None
    """The newest input when the user stopped the loop: inputs up to it are given up."""
    is_evicted: bool = False
    """Whether the loop makes room for another one."""

    @property
    def is_in_turn(self) -> bool:
        return self.stage is not Stage.WAITING

    @property
    def is_interruptible(self) -> bool:
        return self.stage in INTERRUPTIBLE

    @property
    def is_interrupted(self) -> bool:
        return self.interruption is not Interruption.NONE

    @property
    def is_superseded(self) -> bool:
        # By a message.
        return self.interruption is Interruption.SUPERSEDED

    @property
    def can_be_superseded(self) -> bool:
        # The agent must play, and nothing else may be about to end that.
        is_left_alone = self.pause is PauseRequest.NONE and self.stay is not Stay.ENDS
        return self.stage is Stage.PLAYING and is_left_alone and not self.is_interrupted

    @property
    def is_pause_wanted(self) -> bool:
        return self.pause is PauseRequest.WANTED

    # The steps of a turn

    def begin_turn(self) -> Steering:
        return self._to(Stage.PREPARING)

    def begin_play(self) -> Steering:
        return self._to(Stage.PLAYING)

    def end_play(self) -> Steering:
        """Take the turn from the agent, whatever its outcome."""
        return self._to(Stage.ENDING)

    def end_turn(self) -> Steering:
        """End the turn, or its preparation, together with the requests about it."""
        over = self._to(Stage.WAITING)
        if over.pause is PauseRequest.TAKEN_BACK:
            over = over._to(PauseRequest.NONE)
        if over.is_interrupted:
            over = replace(over._to(Interruption.NONE), interrupted_through=None)
        return over

    # Requests

    def want_pause(self) -> Steering:
        """Request a pause; the conversation of an interrupted turn is no longer resumed."""
        return self._unresumed()._to(PauseRequest.WANTED)

    def drop_pause(self) -> Steering:
        """Drop the request to pause: it has taken effect, or is cancelled."""
        return self._to(PauseRequest.NONE) if self.is_pause_wanted else self

    def take_pause_back(self) -> Steering:
        """Cancel a pause for a run, which follows at once if the turn is just pausing."""
        return self if self.pause is PauseRequest.NONE else self._to(PauseRequest.TAKEN_BACK)

    def restore_pause(self) -> Steering:
        return self._to(PauseRequest.WANTED)

    def resume(self) -> Steering:
        """Cancel a pause, also the one with which an interrupted turn ends."""
        unpaused = self.take_pause_back() if self.is_in_turn else self.drop_pause()
        is_paused_by_end = unpaused.is_interrupted and not unpaused.is_superseded
        return unpaused._to(Interruption.RESUMED) if is_paused_by_end else unpaused

    def interrupt(self, *, through: int) -> Steering:
        """End the turn under way and give up the inputs up to `through`; only if `is_interruptible`."""
        if not self.is_interruptible:
            raise ForbiddenTransition(self.stage, Interruption.WANTED)
        return replace(self.forget_runs()._to(Interruption.WANTED), interrupted_through=through)

    def supersede(self, *, through: int) -> Steering:
        """End the turn under way, which answers the inputs up to `through`, for a later message."""
        if not self.can_be_superseded:
            raise ForbiddenTransition(self.stage, Interruption.SUPERSEDED)
        return replace(self._to(Interruption.SUPERSEDED), interrupted_through=through)

    def forget_runs(self) -> Steering:
        """Cancel what was requested against a pause or an interruption."""
        unresumed = self._unresumed()
        return unresumed._to(PauseRequest.NONE) if unresumed.pause is PauseRequest.TAKEN_BACK else unresumed

    def _unresumed(self) -> Steering:
        return self._to(Interruption.WANTED) if self.interruption is Interruption.RESUMED else self

    # The end of the loop

    def leave(self) -> Steering:
        """End as soon as there is nothing to do, unless the loop ends already."""
        return self if self.stay is Stay.ENDS else self._to(Stay.LEAVES)

    def end(self) -> Steering:
        """End at once; this can be requested only once."""
        return self._to(Stay.ENDS)

    def stop(self, *, through: int) -> Steering:
        """Give up the inputs up to `through` at the end of the loop."""
        return replace(self, given_up_through=through)

    def evict(self) -> Steering:
        return replace(self, is_evicted=True)

    def _to(self, after: State) -> Steering:
        field = _FIELDS[type(after)]
        require_allowed(getattr(self, field), after)
        changes: dict[str, Any] = {field: after}
        return replace(self, **changes)
