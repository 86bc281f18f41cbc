"""Hints for SQLite's planner, which assumes that few rows share a value of a column."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, F, Func
from django.db.models.lookups import Exact


class _OfMany(Func):
    """A condition that many rows meet, so that the planner prefers a narrower index if there is one."""

    output_field = BooleanField()
    template = "%(expressions)s"

    # PostgreSQL has statistics of its own.
    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="likelihood(%(expressions)s, 0.5)", **context)


def unselective(column: str, value: Any) -> Func:
    """Return the condition that a column has this value, or that of an expression, as many rows do."""
    return _OfMany(Exact(F(column), value))
