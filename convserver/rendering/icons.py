"""Small drawings before the names of tools."""

from __future__ import annotations

from django.utils.safestring import SafeString, mark_safe

_PATHS = {
    "terminal": "M2.5 3.5h11v9h-11zM5 6.5 7 8.2 5 10M8.5 10.2h2.5",
    "python": "M5.5 4.5 2.5 8l3 3.5M10.5 4.5l3 3.5-3 3.5",
    "edit": "M3 13l.7-3L10.8 2.9a1 1 0 0 1 1.4 0l.9.9a1 1 0 0 1 0 1.4L6 12.3zM9.5 4.2l2.3 2.3",
    "read": "M4 2.5h5l3 3v8H4zM9 2.5v3h3M6 8.5h4M6 10.8h4",
    "browser": "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2M2.2 8h11.6"
    "M8 2.2c3.4 3.4 3.4 8.2 0 11.6-3.4-3.4-3.4-8.2 0-11.6",
    "think": "M6 12.5h4M6.5 14h3M8 2.2a4.2 4.2 0 0 0-2.3 7.7v1.1h4.6V9.9A4.2 4.2 0 0 0 8 2.2",
    "tasks": "M2.5 4 3.6 5l1.9-2M2.5 8.5l1.1 1 1.9-2M2.5 13l1.1 1 1.9-2M8 4.2h5.5M8 8.7h5.5M8 13.2h5.5",
    "mcp": "M6 2.5v3M10 2.5v3M4.5 5.5h7v2.2a3.5 3.5 0 0 1-7 0zM8 11.2v2.6",
    "delegate": "M5.5 4.8a1.8 1.8 0 1 0 0-.1M2.5 13c0-4 6-4 6 0M9.5 7h4M11.8 5.2 13.6 7l-1.8 1.8",
    "memory": "M4 2.5h8v11L8 10.6 4 13.5z",
    "finish": "M3 8.5l3.2 3.2L13 4.8",
    "tool": "M9.8 2.6a3.3 3.3 0 0 0-2.9 4.6L2.6 11.5l1.9 1.9 4.3-4.3a3.3 3.3 0 0 0 4.5-3.6L11.2 7.6 8.6 5z",
    "error": "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2M8 5v3.6M8 10.6v.4",
}


def icon(name: str) -> SafeString:
    """Return one of the drawings as SVG that screen readers skip."""
    # Inside the page, so that its colour is that of the text and no request is made for it.
    path = _PATHS.get(name, _PATHS["tool"])
    return mark_safe(  # noqa: S308 - a drawing of the table above
        '<svg class="glyph" viewBox="0 0 16 16" aria-hidden="true" focusable="false">'
        f'<path d="{path}"/></svg>'
    )
