"""What axe finds on a page that keeps somebody out."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SEVERE = ("serious", "critical")


def violations(page: Page) -> list[str]:
    """Return what axe finds that is serious or critical: the rule, and where."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]} ({node['failureSummary']})"
        for each in found
        if each["impact"] in SEVERE
        for node in each["nodes"][:3]
    ]
