"""What the rounds on one engine found, and what could not be measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median


class Samples:
    """By measurement and round a value: events/s, or MB or ms where the name says so."""

    def __init__(self) -> None:
        self.rounds = 0
        """How many have begun."""
        self._values: dict[str, dict[int, float]] = defaultdict(dict)
        self._failures: dict[str, list[str]] = defaultdict(list)
        self._loads: dict[str, list[float]] = defaultdict(list)

    def keep(self, number: int, key: str, value: float, *, busy: float) -> None:
        """Keep a value of a round, and the percent of the machine that others used before it was measured."""
        self._values[key][number] = value
        self._loads[key].append(busy)

    def fail(self, keys: Iterable[str], reason: str) -> None:
        """Keep why these could not be measured in a round."""
        for key in keys:
            self._failures[key].append(reason)

    def of(self, key: str) -> list[float]:
        """Return the values of a measurement, in the order of the rounds."""
        return list(self._values[key].values())

    def paired(self, key: str, other: str) -> Iterator[tuple[float, float]]:
        """Return the values of two measurements from the rounds that have both."""
        for number, value in self._values[key].items():
            if number in self._values[other]:
                yield value, self._values[other][number]

    def failures(self, *keys: str) -> list[str]:
        """Return why these could not be measured, each reason once."""
        return list(dict.fromkeys(reason for key in keys for reason in self._failures[key]))

    def failed(self) -> bool:
        """Say whether anything could not be measured."""
        return any(self._failures.values())

    def load(self, *keys: str) -> float | None:
        """Return the median percent of the machine that others used before these were measured."""
        loads = [busy for key in keys for busy in self._loads[key]]
        return median(loads) if loads else None

    def document(self) -> dict[str, list[float | None]]:
        """Return the values by measurement, a place for each round, None where there is no value."""
        return {
            key: [values.get(number) for number in range(self.rounds)]
            for key, values in self._values.items()
            if values
        }
