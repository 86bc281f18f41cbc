"""The Chromium that tests look at pages in."""

from __future__ import annotations

import shutil

PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""Debian's, None where there is none. The first is the same browser without windows, and half the work."""

LAUNCH = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


def problem() -> str | None:
    """Say in a few words why tests cannot look at the pages; None when they can."""
    return None if PROGRAM else "there is no chromium"
