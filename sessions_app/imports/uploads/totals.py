"""The sums of an import's report, bounded however strange the file is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conversations.dialects import columns
from sessions_app.imports.report import ConversationReport

OTHERS = "other reasons"


@dataclass(kw_only=True, slots=True)
class Totals:
    """What was done with all records so far."""

    found: int = 0
    stored: int = 0
    shared: int = 0
    added: int = 0
    already_here: int = 0
    masked: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)

    def add(self, done: ConversationReport) -> None:
        self.found += done.found
        self.stored += done.stored
        self.shared += done.shared
        self.added += done.events_added
        self.already_here += done.events_already_here
        self.masked += done.events_masked
        # A strange file can have another reason in each record; beyond this many, they count as one.
        reasons_max = 100
        for total, counted in (
            (self.skipped, done.skipped),
            (self.refused, done.refused),
            (self.kept, done.kept),
            (self.noted, done.noted),
        ):
            for reason, count in counted.items():
                is_known = reason in total or len(total) < reasons_max
                total[reason if is_known else OTHERS] += count

    def as_json(self) -> dict[str, Any]:
        """Return {records: {found, stored, shared, skipped, refused}, kept_as_they_were, noted, events}."""
        return {
            "records": {
                "found": self.found,
                "stored": self.stored,
                "shared": self.shared,
                "skipped": storable(self.skipped),
                "refused": storable(self.refused),
            },
            "kept_as_they_were": storable(self.kept),
            "noted": storable(self.noted),
            "events": {"added": self.added, "already_here": self.already_here, "masked": self.masked},
        }


def of_one(done: ConversationReport) -> dict[str, Any]:
    """Return the same of one conversation."""
    alone = Totals()
    alone.add(done)
    return alone.as_json()


def storable(counted: Mapping[str, int]) -> dict[str, int]:
    """Return counts by reasons as every database can store them."""
    found: Counter[str] = Counter()
    reason_max_length = 300
    for reason, count in counted.items():
        found[columns.clean(reason)[:reason_max_length]] += count
    return dict(found)
