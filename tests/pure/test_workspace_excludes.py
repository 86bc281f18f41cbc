"""What patterns leave out of an archive, in the way of the wire."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sessions_app.workspaces.excludes import Excludes

NAME = some.sampled_from(["a", "b", "ab", "a.pyc", "[a]", "*", "a\nb", ".git", "\udcff", "größe"])
PART = some.sampled_from(["a", "b", "*", "?", "a*", "*b", "[ab]", "[!a]", "*.pyc", "[", "", "*a*b*", "größe"])
PATHS = some.lists(NAME, min_size=1, max_size=4)
PATTERNS = some.lists(
    some.builds(
        "{}{}".format,
        some.lists(PART, min_size=1, max_size=4).map("/".join),
        some.sampled_from(["", "/"]),
    ),
    max_size=5,
)


def is_excluded(parts: Sequence[str], is_directory: bool, patterns: Sequence[str]) -> bool:
    """Say the same plainly: whether a pattern fits a path, or a directory above it."""
    return any(
        fits(parts[: length + 1], pattern)
        for pattern in patterns
        for length in range(len(parts))
        if length + 1 < len(parts) or is_directory or not pattern.endswith("/")
    )


def fits(parts: Sequence[str], pattern: str) -> bool:
    plain = pattern.rstrip("/")
    if "/" not in plain:
        return fnmatchcase(parts[-1], plain)
    wanted = plain.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def on_a_walk(excludes: Excludes, parts: Sequence[str], is_directory: bool) -> bool:
    """Return whether a walk leaves out a path: it asks of the directories on the way first."""
    ways = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    return any(excludes.leave_out(way, True) for way in ways[:-1]) or excludes.leave_out(
        ways[-1], is_directory
    )


@given(parts=PATHS, is_directory=some.booleans(), patterns=PATTERNS)
def test_a_path_is_left_out_if_a_pattern_fits_it_or_a_directory_above_it(
    parts: list[str], is_directory: bool, patterns: list[str]
) -> None:
    wanted = is_excluded(parts, is_directory, patterns)
    assert on_a_walk(Excludes(patterns), parts, is_directory) == wanted


@pytest.mark.parametrize(
    ("top", "path", "is_left_out"),
    [
        ("", ".git/config", True),
        ("", ".git/HEAD", False),
        ("", "src/.git/config", True),
        ("", ".git/logs", True),
        ("", ".git/modules/m/config", True),
        ("", "config", False),
        (".git", "config", True),
        (".git", "HEAD", False),
        ("src/.git/modules", "m/config", True),
        ("src/.git", "logs", True),
    ],
)
def test_what_holds_the_token_of_a_clone_is_left_out_wherever_an_archive_begins(
    top: str, path: str, is_left_out: bool
) -> None:
    assert Excludes([], top).leave_out(path, False) is is_left_out


def test_a_hundred_patterns_cost_little_at_any_depth() -> None:
    depth, entries = 64, 500
    ways = ["*"] * (depth - 1)
    patterns = ["/".join([*ways[: number % 50], "x*y*z", *ways[number % 50 :]]) for number in range(50)]
    excludes = Excludes([*patterns, *(f"*{number}*a*b*c*d" for number in range(50))])
    above = "/".join(["directory"] * (depth - 1))
    start = time.thread_time()
    for number in range(entries):
        assert not excludes.leave_out(f"{above}/{'abc' * 20}{number}", False)
    # With each pattern matched anew with each part of the path it was 4 ms an entry.
    assert (time.thread_time() - start) / entries < 0.001
