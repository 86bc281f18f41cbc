"""A directory of a workspace, two levels deep, as a model is shown it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.tree import Tree

CLIPPED = (
    "<response clipped><NOTE>Due to the max output limit, only part of this directory is shown. View a "
    "directory in it, or use search with `include`.</NOTE>"
)


def listed(tree: Tree | None, path: str, shown: str) -> str:
    """Return what is in a directory without hidden files; `shown` is its absolute path.

    Raise PathRefused if the path names no directory.
    """
    names = [] if tree is None else tree.names(path, tree.limits.files)
    hidden = sum(name.startswith(".") for name in names)
    lines_most, chars_left = 1_000, 30_000
    lines: list[str] = []
    for line in _lines(tree, path, shown, names):
        chars_left -= len(line) + 1
        if len(lines) >= lines_most or chars_left < 0:
            lines.append(CLIPPED)
            break
        lines.append(line)
    listing = "\n".join(lines)
    told = (
        f"Here's the files and directories up to 2 levels deep in {shown}, excluding hidden items:\n{listing}"
    )
    return f"{told}\n\n{hidden} hidden files/directories in this directory are excluded." if hidden else told


def _lines(tree: Tree | None, path: str, shown: str, names: list[str]) -> Iterator[str]:
    yield f"{shown}/"
    for name in names:
        if name.startswith("."):
            continue
        yield f"{shown}/{name}"
        if tree is not None and name.endswith("/"):
            inner_most = 1_000
            # It may be gone meanwhile.
            with suppress(PathRefused):
                for each in tree.names("/".join(filter(None, (path, name))).rstrip("/"), inner_most):
                    if not each.startswith("."):
                        yield f"{shown}/{name}{each}"
