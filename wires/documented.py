"""What docs/compatibility.md says of each route, and which routes of the newest packages it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wires.sources import route

PAGE = Path(__file__).parent.parent / "docs" / "compatibility.md"
KNOWN = Path(__file__).parent / "known.txt"
"""Routes and kinds of events that nobody has looked at yet; it may only get shorter."""
_ROW = re.compile(r"^\| (?P<first>[^|]+) \|(?P<rest>.*)$", re.M)
_ROUTE = re.compile(r"`(?P<method>GET|POST|PUT|PATCH|DELETE|WEBSOCKET) (?P<path>[^`?]+)[^`]*`")


class Comparison(NamedTuple):
    """What of the newest packages is documented here."""

    new: list[str]
    """Neither documented nor known."""
    missing: list[str]
    """Known, and not documented yet."""
    done: list[str]
    """Listed as known though it is documented, or gone from the packages: to be taken off the list."""


def rows() -> dict[str, str]:
    """Return the routes that the page has a row for, each with the other cells of its row."""
    return {
        route(found["method"], found["path"]): row["rest"]
        for row in _ROW.finditer(PAGE.read_text())
        for found in _ROUTE.finditer(row["first"])
    }


def known() -> list[str]:
    """Return the list of known differences."""
    return [line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]


def compared(found: Iterable[str], here: Iterable[str]) -> Comparison:
    """Compare what packages have with what is documented or served here."""
    listed, lacking = set(known()), set(found) - set(here)
    return Comparison(
        new=sorted(lacking - listed), missing=sorted(lacking & listed), done=sorted(listed - lacking)
    )
