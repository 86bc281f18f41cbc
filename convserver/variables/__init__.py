"""The variables of the environment: each is declared once, and read, refused and documented from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

E = TypeVar("E", bound=StrEnum)

DECLARED = "variable"


class ConfigurationError(Exception):
    """An environment variable has a value with which the server cannot start; the text names the variable."""


class Given(NamedTuple):
    """What a parser may look at beside the text of its own variable."""

    environment: Mapping[str, str]
    known: Mapping[str, Any]  # the values of the fields above

    @property
    def is_local(self) -> bool:
        return bool(self.known["auth"] == "local")


Parser = Callable[[str, str, Given], Any]
"""Returns the value of a variable with this name and text. Raises ConfigurationError."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """The declaration of a variable."""

    name: str
    parse: Parser
    default: str  # its text where it is not set, or empty
    shown: str  # its default in the documentation
    meaning: str  # what docs/operation.md says of it


def variable(
    name: str, parse: Parser, *, default: str = "", shown: str = "", meaning: str, repr: bool = True
) -> Any:
    """Declare the variable of a field."""
    declared = Variable(
        name=name, parse=parse, default=default, shown=shown or f"`{default}`", meaning=meaning
    )
    return field(metadata={DECLARED: declared}, repr=repr)


def declared_in(table: Any) -> dict[str, Variable]:
    """Return the variables of a dataclass by their fields."""
    return {each.name: each.metadata[DECLARED] for each in fields(table)}


def values_of(table: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each field, in order. Raise ConfigurationError for the first wrong variable."""
    known: dict[str, Any] = {}
    given = Given(environment, known)
    # In the order of the fields: a parser may use the values above its own.
    for name, each in declared_in(table).items():
        known[name] = each.parse(each.name, environment.get(each.name) or each.default, given)
    return known


def documentation_of(table: Any) -> str:
    """Return the table of docs/operation.md."""
    rows = [f"| `{each.name}` | {each.shown} | {each.meaning} |" for each in declared_in(table).values()]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows]) + "\n"


def whole(least: int, most: int) -> Parser:
    """Read a whole number."""

    def parse(name: str, text: str, _: Given) -> int:
        # `int` reads signs, blanks and digits of other scripts, too, and refuses thousands of digits.
        is_number = text.isascii() and text.isdigit() and len(text) < 20
        if not (is_number and least <= int(text) <= most):
            allowed = "0 or 1" if (least, most) == (0, 1) else f"a whole number from {least} to {most}"
            raise ConfigurationError(f"{name} is {text!r}, but it must be {allowed}.")
        return int(text)

    return parse


def whole_or_none(most: int) -> Parser:
    """Read a whole number; None for 0."""
    number = whole(0, most)
    return lambda name, text, given: number(name, text, given) or None


def flag(name: str, text: str, given: Given) -> bool:
    """Read 0 or 1."""
    return bool(whole(0, 1)(name, text, given))


def choice(choices: type[E]) -> Parser:
    """Read a member of an enumeration."""

    def parse(name: str, text: str, _: Given) -> E:
        if text not in list(choices):
            allowed = ", ".join(choices) if len(choices) == 1 else f"one of: {', '.join(choices)}"
            raise ConfigurationError(f"{name} is {text!r}, but it must be {allowed}.")
        return choices(text)

    return parse


def words(name: str, text: str, _: Given) -> tuple[str, ...]:
    """Read words that commas separate."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def url_parts(name: str, url: str) -> SplitResult:
    """Split a URL; an error shows nothing of it, because any part of it may be one of a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        # Without the error, which shows what it takes for the port: behind a “/” in a password, a part of it.
        raise ConfigurationError(
            f"{name} is not a valid URL: its host or its port cannot be read. In a user name or a password, "
            "write / as %2F, ? as %3F, # as %23, @ as %40, : as %3A, [ as %5B and ] as %5D."
        ) from None
    return parts
