"""The pins install what they name, whatever has been released since."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"


def pins(name: str) -> dict[str, Requirement]:
    """Return the pins of a file by the canonical names of their packages."""
    lines = (REQUIREMENTS / name).read_text().splitlines()
    pinned = (Requirement(line.partition("\\")[0]) for line in lines if "==" in line and line[0].isalnum())
    return {canonicalize_name(pin.name): pin for pin in pinned}


def needed_with_extras(pin: Requirement) -> Iterator[Requirement]:
    """Yield what a package, with the extras of its pin, needs with extras of its own."""
    try:
        all_needed = [Requirement(text) for text in requires(pin.name) or ()]
    except PackageNotFoundError:  # for another platform
        return
    for needed in all_needed:
        extras = ["", *pin.extras]
        is_needed = needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in extras)
        if needed.extras and is_needed:
            yield needed


# An older pip looks for a package with extras by itself, takes its newest release, and refuses that.
@pytest.mark.parametrize("name", ["base.txt", "dev.txt"])
def test_what_is_needed_with_extras_is_pinned_with_them(name: str) -> None:
    pinned = pins(name)
    missing = {
        str(needed)
        for pin in pinned.values()
        for needed in needed_with_extras(pin)
        if not needed.extras <= pinned[canonicalize_name(needed.name)].extras
    }
    assert len(pinned) > 50
    assert missing == set()
