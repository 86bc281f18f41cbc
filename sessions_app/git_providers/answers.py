"""A provider's answer, read field by field, without trust in its shape."""

from __future__ import annotations

from collections.abc import Mapping

from sessions_app.git_providers.base import GitProviderError


class ProviderAnswer:
    """One JSON value of a provider; the names of fields lead into it.

    Reading raises GitProviderError for a field of another type.
    """

    def __init__(self, label: str, value: object) -> None:
        self._label = label
        self._value = value

    def at(self, *path: str) -> ProviderAnswer:
        """Return the value there; null without one."""
        value = self._value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return ProviderAnswer(self._label, value)

    def text(self, *path: str) -> str:
        value = self.at(*path)._value
        if not isinstance(value, str):
            raise self._odd(path)
        return value

    def identity(self, *path: str) -> str:
        """Return an id as a text, also where it is a number."""
        number = self.number_or_none(*path)
        return self.text(*path) if number is None else str(number)

    def text_or_none(self, *path: str) -> str | None:
        value = self.at(*path)._value
        return value if isinstance(value, str) and value else None

    def number(self, *path: str) -> int:
        """Return a whole number, also where it is written as a text, as GraphQL's ids are."""
        text = self.identity(*path)
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):  # fits in 64 bits
            raise self._odd(path)
        return int(text)

    def number_or_none(self, *path: str) -> int | None:
        value = self.at(*path)._value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def is_true(self, *path: str) -> bool:
        return self.at(*path)._value is True

    def is_null(self, *path: str) -> bool:
        return self.at(*path)._value is None

    def each(self, *path: str) -> list[ProviderAnswer]:
        """Return the objects of a list, without nulls."""
        value = self.at(*path)._value
        if not isinstance(value, list) or not all(
            item is None or isinstance(item, Mapping) for item in value
        ):
            raise self._odd(path)
        return [ProviderAnswer(self._label, item) for item in value if item is not None]

    def _odd(self, path: tuple[str, ...]) -> GitProviderError:
        return GitProviderError(f"{self._label} gave an answer without {'.'.join(path) or 'a list'}.")
