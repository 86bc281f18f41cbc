"""What axe finds on a page that keeps somebody out."""

from __future__ import annotations

from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

AXE = Axe()
SEVERE = ("serious", "critical")
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

# A colour that fades into another one is neither, for a moment.
_FADED = """
() => Promise.all(
  document.getAnimations().filter((each) => each instanceof CSSTransition).map(({ finished }) => finished)
)
"""


def violations(page: Page) -> list[str]:
    """Return what axe finds that is serious or critical: the rule, and where."""
    found = AXE.run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]} ({node['failureSummary']})"
        for each in found
        if each["impact"] in SEVERE
        for node in each["nodes"][:3]
    ]


def violations_in_themes(page: Page) -> list[str]:
    """Return what axe finds in the light and in the dark theme of the system, and in which."""
    found = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        page.evaluate(_FADED)
        found += [f"{theme}: {each}" for each in violations(page)]
    return found
