"""Finding text in any case: the same way on both engines, for letters of every script."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, TextField
from django.db.models.lookups import Contains

_ON_SQLITE = "convserver_upper"
_ON_POSTGRESQL = 'UPPER({} COLLATE "und-x-icu")'
"""ICU is asked, for the database's own locale may know the letters of ASCII alone."""

IN_CAPITALS = {"sqlite": f"{_ON_SQLITE}(title)", "postgresql": _ON_POSTGRESQL.format("title")}
"""A title in capitals, as each engine's own SQL has it."""


class Upper(Func):
    """A text in capitals, by Unicode's own rules whatever language the database was made for."""

    function = _ON_SQLITE
    arity = 1
    output_field = TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return it as that engine has it."""
        return self.as_sql(compiler, connection, template=_ON_POSTGRESQL.format("%(expressions)s"), **context)


class _Holds(Contains):
    """The condition that a text stands in another, however long it is."""

    def as_sqlite(self, compiler: Any, connection: Any) -> Any:
        """Return it as that engine has it: its LIKE refuses a pattern of more than 50,000 bytes."""
        column, params = self.process_lhs(compiler, connection)
        return f"INSTR({column}, %s) > 0", [*params, self.rhs]


def holds(column: str, text: str) -> Contains:
    """Return the condition that a column has the text somewhere, in any case; `ß` counts as `ss`."""
    return _Holds(Upper(column), text.upper())


def teach(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Give a new SQLite connection the function: its own knows the letters of ASCII alone."""
    if connection.vendor == "sqlite":
        connection.connection.create_function(_ON_SQLITE, 1, _upper, deterministic=True)


def _upper(text: str | None) -> str | None:
    return None if text is None else text.upper()
