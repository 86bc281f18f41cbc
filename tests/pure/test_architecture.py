"""docs/architecture.md shows the rooms that there are; it and docs/decisions/ name files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
DECISIONS = ROOT / "docs" / "decisions"
APPS = ("convserver", "sessions_app", "conversations")
WITHOUT_A_LINE = {"management", "migrations"}
FILES_MAX = 20
PATH = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+)(?:\.py)?/?`")


def rooms() -> Iterator[Path]:
    """Yield every folder of Python files, relative to the root."""
    for app in APPS:
        for found in sorted((ROOT / app).rglob("__init__.py")):
            yield found.parent.relative_to(ROOT)


def shown() -> set[str]:
    """Return the folders in the page's tree, each with those above it."""
    tree = PAGE.split("```\nconvserver/\n", 1)[1].split("```", 1)[0]
    found: list[str] = []
    above: list[str] = []
    for line in ("convserver/\n" + tree).splitlines():
        if name := re.match(r"( *)([a-z_0-9]+)/", line):
            above = [*above[: len(name[1]) // 2], name[2]]
            found.append("/".join(above))
    return set(found)


def test_every_room_has_a_line_in_the_tree() -> None:
    top = {str(room) for room in rooms() if len(room.parts) == 2 and room.name not in WITHOUT_A_LINE}
    assert top <= shown()


def test_every_line_of_the_tree_is_a_folder() -> None:
    assert {path for path in shown() if not (ROOT / path).is_dir()} == set()


def test_every_file_that_is_named_exists() -> None:
    files = {
        str(path.relative_to(ROOT).with_suffix("")) for app in APPS for path in (ROOT / app).rglob("*.py")
    }
    folders = {str(room) for room in rooms()} | {"convserver/static/web", "tests/pure"}
    known = [f"/{name}" for name in files | folders]
    pages = [PAGE, *(record.read_text() for record in DECISIONS.glob("*.md"))]
    named = {
        path
        for page in pages
        for path in PATH.findall(page)
        if path.split("/")[0] not in {"docs", "tests", "templates"}
    }
    assert {path for path in named if not any(each.endswith(f"/{path}") for each in known)} == set()


def test_every_decision_is_in_the_index() -> None:
    records = {path.name for path in DECISIONS.glob("0*.md")}
    assert set(re.findall(r"\]\((0\d{3}-[a-z0-9-]+\.md)\)", (DECISIONS / "README.md").read_text())) == records


def test_no_room_has_too_many_files() -> None:
    counted = {room: len(list((ROOT / room).glob("*.py"))) for room in rooms() if room.name != "migrations"}
    assert {room: count for room, count in counted.items() if count > FILES_MAX} == {}
