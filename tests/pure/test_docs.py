"""The pages of the documentation link to what exists, and show the pictures that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_engine

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings; of equal ones, the later ones are numbered."""
    headings = [
        re.sub(r"[^\w\- ]", "", heading).strip(" ").lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    ]
    return {
        heading if not (before := headings[:at].count(heading)) else f"{heading}-{before}"
        for at, heading in enumerate(headings)
    }


def test_every_link_leads_somewhere(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(str(page.relative_to(ROOT))):
            for path, anchor in LINK.findall(page.read_text()):
                target = (page.parent / path).resolve() if path else page
                assert target.exists(), path
                assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_the_pictures_kept_are_those_that_a_page_shows() -> None:
    shown = {
        Path(path).name for page in PAGES for path in re.findall(r"pictures/([\w-]+\.png)", page.read_text())
    }
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == shown
