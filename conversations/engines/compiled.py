"""Queries that are executed repeatedly with other values: each thread makes their SQL once.

Making the SQL of a query with joins takes several times as long as the database takes to answer it.

This uses a class that Django does not document, `SQLCompiler`: `Query.get_compiler`, and of the compiler
`as_sql`, `select`, `col_count`, `get_converters` and `apply_converters`. The documented ways are a cursor and
`Manager.raw`, for which each query would be written a second time, as text, for two engines.
`tests/store/test_read_statements.py` compares the rows with those of the query itself, so that a new Django
in which the class has changed is noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from inspect import signature
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import QuerySet, Value


class _Given(NamedTuple):
    """A value that comes with each execution; in a list of values, the one at this place."""

    name: str
    place: int | None = None

    def of(self, values: dict[str, Any]) -> Any:
        value = values[self.name]
        return value if self.place is None else value[self.place]


class _Compiled:
    """The SQL of a query on this thread's connection."""

    def __init__(self, rows: QuerySet[Any, Any]) -> None:
        query: Any = rows.query
        self._compiler: Any = query.get_compiler(connection=connection)
        self._sql, self._parameters = self._compiler.as_sql()
        # As in `SQLCompiler.results_iter`.
        selected = [column for column, _, _ in self._compiler.select[: self._compiler.col_count]]
        self._converters = self._compiler.get_converters(selected)
        self.names = list(query.selected or ())

    def run(self, values: dict[str, Any]) -> Iterable[Sequence[Any]]:
        adapted = connection.ops.adapt_unknown_value
        with connection.cursor() as cursor:
            cursor.execute(
                self._sql,
                [adapted(each.of(values)) if isinstance(each, _Given) else each for each in self._parameters],
            )
            found = cursor.fetchall()
        converted: Iterable[Sequence[Any]] = self._compiler.apply_converters(found, self._converters)
        return converted if self._converters else found


class CompiledQuery:
    """A query for `values()` or `values_list()` whose SQL is made once for each form."""

    def __init__(self, build: Callable[..., QuerySet[Any, Any]]) -> None:
        """`build` returns the query.

        Its positional arguments choose the form, such as a limit. Its keywords are the values of each
        execution: values in conditions, or, for a list, lists of such values.
        """
        self._build = build
        self._names = [
            name for name, each in signature(build).parameters.items() if each.kind is each.KEYWORD_ONLY
        ]
        self._compiled = threading.local()

    def rows(self, *form: Hashable, **values: Any) -> list[dict[str, Any]]:
        """Return the rows for these values, which are texts, numbers, times or lists of these."""
        if _has_no_values(values):
            return []
        compiled = self._of(form, values)
        return [dict(zip(compiled.names, row, strict=True)) for row in compiled.run(values)]

    def tuples(self, *form: Hashable, **values: Any) -> list[Sequence[Any]]:
        return [] if _has_no_values(values) else list(self._of(form, values).run(values))

    def _of(self, form: tuple[Hashable, ...], values: dict[str, Any]) -> _Compiled:
        lengths = tuple(len(value) if isinstance(value, list) else None for value in values.values())
        known: dict[Hashable, _Compiled] = self._compiled.__dict__  # type: ignore[assignment]
        compiled = known.get((form, lengths))
        if compiled is None:
            given = {
                name: [Value(_Given(name, place)) for place in range(len(values[name]))]
                if isinstance(values[name], list)
                else Value(_Given(name))
                for name in self._names
            }
            compiled = known[form, lengths] = _Compiled(self._build(*form, **given))
        return compiled


def _has_no_values(values: dict[str, Any]) -> bool:
    """Return whether a list of values is empty: then no row matches."""
    return any(value == [] for value in values.values())
