"""Patterns of file names, matched without backtracking over a path."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def fits(path: str, pattern: str) -> bool:
    """Return whether a pattern names a path.

    One without a slash is of the last name. `**` stands for any number of directories.
    """
    parts, wanted = path.split("/"), pattern.strip("/").split("/")
    if len(wanted) == 1 and wanted != ["**"]:
        return fnmatchcase(parts[-1], wanted[0])
    return _fits(parts, wanted)


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    # For each number of parts at the beginning: whether the pattern up to here names them.
    named = [True, *([False] * len(parts))]
    for each in wanted:
        if each == "**":
            first = named.index(True) if True in named else len(named)
            named = [at >= first for at in range(len(named))]
        else:
            fitting = [fnmatchcase(part, each) for part in parts]
            named = [False, *(before and fits for before, fits in zip(named, fitting, strict=False))]
    return named[-1]
