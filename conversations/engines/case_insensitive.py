"""Finding text regardless of case: the same on both engines, in every script."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, TextField
from django.db.models.lookups import Contains

_ON_SQLITE = "convserver_upper"
# The ICU collation is used because the database's own locale may know only ASCII letters.
_ON_POSTGRESQL = 'UPPER({} COLLATE "und-x-icu")'

# A title in capitals, as each engine's own SQL has it.
IN_CAPITALS = {"sqlite": f"{_ON_SQLITE}(title)", "postgresql": _ON_POSTGRESQL.format("title")}


class Upper(Func):
    """A text in upper case by Unicode's rules, whatever language the database was created for."""

    function = _ON_SQLITE
    arity = 1
    output_field = TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=_ON_POSTGRESQL.format("%(expressions)s"), **context)


class _Holds(Contains):
    """The condition that a column contains a text, however long the text is."""

    def as_sqlite(self, compiler: Any, connection: Any) -> Any:
        # SQLite's LIKE refuses a pattern of more than 50,000 bytes.
        column, params = self.process_lhs(compiler, connection)
        return f"INSTR({column}, %s) > 0", [*params, self.rhs]


def holds(column: str, text: str) -> Contains:
    """Return the condition that a column contains the text, in any case; `ß` counts as `ss`."""
    return _Holds(Upper(column), text.upper())


def register_function(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Register the function on a new SQLite connection: SQLite's own `upper` knows only ASCII."""
    if connection.vendor == "sqlite":

        def upper(text: str | None) -> str | None:
            return None if text is None else text.upper()

        connection.connection.create_function(_ON_SQLITE, 1, upper, deterministic=True)
