"""The observer of an import: it shows progress, stops it, or counts what it stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from conversations.events import NewEvent
from conversations.store.importing import Admit


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """What an import calls; each may raise, which ends the import."""

    look: Callable[[], None] = _nothing
    """Called again and again before the first record is stored, while all are looked through."""
    read: Callable[[], None] = _nothing
    """Called for each record that was read, outside of transactions."""
    admit: Admit | None = None
    """Called with the events that are about to be stored."""


UNWATCHED = Watch()


def watched(events: Iterable[NewEvent], watch: Watch) -> Iterator[NewEvent]:
    """Yield the events of a format that has one for each record."""
    for event in events:
        watch.read()
        yield event
