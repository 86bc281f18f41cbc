"""What SQLite's planner is told: it takes any value of a column for one that a few rows have."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, F, Func
from django.db.models.lookups import Exact


class _OfMany(Func):
    """A condition that many rows meet, so that a narrower way to them is taken where there is one."""

    output_field = BooleanField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return it as that engine has it; PostgreSQL counts for itself."""
        return self.as_sql(compiler, connection, template="likelihood(%(expressions)s, 0.5)", **context)


def of_many(column: str, value: Any) -> Func:
    """Return the condition that a column has this value, or that of an expression, as many rows do."""
    return _OfMany(Exact(F(column), value))
