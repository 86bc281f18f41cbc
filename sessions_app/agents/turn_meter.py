"""The meter of one turn: its remaining time, and the reservations of its calls of models."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from conversations.events import ConversationRef, Dialect
from sessions_app.agents import metering
from sessions_app.agents.base import CallUsage
from sessions_app.agents.metering import Reached, TurnShare
from sessions_app.models import Amounts, RunMeter
from sessions_app.settings import run_limits
from sessions_app.settings.run_limits import RunLimits, Unit


class TurnMeter:
    """Meters a turn from the start of its play until it ends, waits or pauses."""

    def __init__(
        self,
        conversation: ConversationRef,
        turn_id: str,
        epoch: int,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conversation = conversation
        self._turn_id = turn_id
        self._epoch = epoch
        self._now = now
        self._counted_at = now()
        # V1 clients know an error for each limit; others resume a turn that pauses.
        self._asks = conversation.dialect is not Dialect.V1
        self.family: Sequence[RunLimits] = ()
        """The limits of the conversation, and of its ancestors."""
        self._ended = Amounts()
        self._call_id = ""
        self._is_first = True
        self._ends_at: float | None = None
        self._time: Reached | None = None
        """The limit that ends the turn's time."""
        self.is_spent = False
        """Whether the turn pauses because its own time is over."""

    def read(self) -> None:
        """Read the limits, and measure the time from now on. Call it in a database thread."""
        family = run_limits.family_limits(self._conversation)
        has_time = family[0].has(Unit.SECONDS)
        meter = RunMeter.objects.of(self._conversation).first() if has_time else None
        self.family, self._counted_at, self._ends_at = family, self._now(), None
        for limit in family[0].limits.values():
            if limit.unit is Unit.SECONDS:
                used = metering.used_so_far(meter, limit, self._turn_id)
                ends_at = self._counted_at + max(limit.most - limit.used_of(used), 0.0)
                if self._ends_at is None or ends_at < self._ends_at:
                    self._ends_at, self._time = ends_at, Reached(limit, used)

    @property
    def seconds_left(self) -> float | None:
        """Return the remaining time of the agent; None without a limit."""
        return None if self._ends_at is None else max(self._ends_at - self._now(), 0.0)

    @property
    def is_out_of_time(self) -> bool:
        return self.seconds_left == 0.0

    def spend_time(self) -> Reached | None:
        """Return the limit of time if it is reached, and mark the turn's own as spent."""
        if not self.is_out_of_time or self._time is None:
            return None
        self.is_spent = self._asks and self._time.limit.is_of_turn
        return self._time

    def count(self, usage: CallUsage) -> None:
        """Add the usage of a call; the next reservation counts it, or the end of the turn."""
        self._ended = self._ended.plus(metering.amounts_of(usage))

    def share(self, *, reserves: bool) -> TurnShare:
        """Return the usage to count, with a call to reserve; its count may be repeated."""
        elapsed_ms = round((self._now() - self._counted_at) * 1000)
        return TurnShare(
            turn_id=self._turn_id,
            epoch=self._epoch,
            call_id=uuid4().hex if reserves else self._call_id,
            ended=self._ended._replace(worked_ms=elapsed_ms),
            is_first=self._is_first,
            asks=self._asks,
        )

    def has_counted(self, share: TurnShare) -> None:
        """Subtract a share that is counted."""
        # A call may have ended since the share was taken: what it used stays for the next one.
        self._counted_at += share.ended.worked_ms / 1000
        counted = Amounts(*(-amount for amount in share.ended[:3]))
        self._ended = self._ended.plus(counted)
        self._call_id, self._is_first = share.call_id, False

    @property
    def has_to_settle(self) -> bool:
        """Return whether the end of the turn must be counted: a call was reserved, or the time is limited."""
        return bool(self._call_id) or self._ends_at is not None
