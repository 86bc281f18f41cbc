"""Recent stops of conversations, which cancel starts that were requested earlier."""

from __future__ import annotations

# Only stops during a start matter; more than this during one would cancel starts without need.
KEPT_MAX = 1_000


class Stops:
    """The last stops, in order. A forgotten stop counts as one of every conversation before it."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._count = 0
        self._forgotten_through = 0

    @property
    def now(self) -> int:
        """The present moment, as a number that every stop increases."""
        return self._count

    def note(self, pk: int) -> None:
        self._count += 1
        self._last.pop(pk, None)
        self._last[pk] = self._count
        if len(self._last) > KEPT_MAX:
            self._forgotten_through = self._last.pop(next(iter(self._last)))

    def was_stopped(self, pk: int, *, since: int) -> bool:
        """Return whether the conversation was stopped after this moment, or may have been."""
        return self._last.get(pk, self._forgotten_through) > since
