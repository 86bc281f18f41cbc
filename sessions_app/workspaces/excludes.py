"""Patterns of what an archive leaves out, in the way of the wire."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

DEFAULT_EXCLUDES = (
    *(".git/", "node_modules/", ".venv/", "venv/", "__pycache__/", ".mypy_cache/", ".pytest_cache/"),
    *(".ruff_cache/", "dist/", "build/", ".next/", "target/", "*.pyc"),
)
"""What the wire leaves out of an archive unless a client asks for all."""
_GIT_SECRETS = frozenset({"config", "config.worktree", "credentials", ".git-credentials", "FETCH_HEAD"})
"""Files below `.git` in which a clone keeps its token."""


class _WholePath(NamedTuple):
    """A pattern of paths from the top: one for each name on the way."""

    names: tuple[re.Pattern[str], ...]
    is_of_directories: bool


class Excludes:
    """What patterns leave out, on a walk that looks at nothing below a directory that is left out.

    A pattern without a slash is of a name at any depth, one with a slash of a whole path from the top; a
    slash at the end makes it one of directories alone. What holds the token of a clone is always left out.
    """

    def __init__(self, patterns: Sequence[str], top: str = "") -> None:
        """Take patterns for paths that begin at `top`, a path in the workspace."""
        self._above = top.split("/") if top else []
        of_names: dict[bool, list[str]] = defaultdict(list)
        self._whole: list[_WholePath] = []
        for pattern in dict.fromkeys(patterns):
            plain, is_of_directories = pattern.rstrip("/"), pattern.endswith("/")
            if "/" in plain:
                names = tuple(re.compile(translate(name)) for name in plain.split("/"))
                self._whole.append(_WholePath(names, is_of_directories))
            else:
                of_names[True].append(translate(plain))
                if not is_of_directories:
                    of_names[False].append(translate(plain))
        self._names = {kind: re.compile("|".join(found)) for kind, found in of_names.items()}
        # For the directories on the way to where a walk is.
        self._begun_below = lru_cache(maxsize=256)(self._begun)

    def leave_out(self, path: str, is_directory: bool) -> bool:
        """Return whether a path is left out; callers do not ask about paths below one that is."""
        above, _, name = path.rpartition("/")
        depth = path.count("/")
        names = self._names.get(is_directory)
        return (
            (names is not None and names.match(name) is not None)
            or any(
                len(each.names) == depth + 1 and each.names[depth].match(name)
                for each in self._begun_below(above)
                if is_directory or not each.is_of_directories
            )
            or _holds_token([*self._above, *path.split("/")])
        )

    def _begun(self, directory: str) -> Sequence[_WholePath]:
        """Return the patterns whose beginning fits a directory, and that have more names."""
        if not directory:
            return self._whole
        above, _, name = directory.rpartition("/")
        depth = directory.count("/")
        return [
            each
            for each in self._begun_below(above)
            if len(each.names) > depth + 1 and each.names[depth].match(name)
        ]


def _holds_token(names: Sequence[str]) -> bool:
    if ".git" not in names:
        return False
    inner = names[names.index(".git") + 1 :]
    return "logs" in inner or (bool(inner) and inner[-1] in _GIT_SECRETS)
