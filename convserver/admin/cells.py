"""How one value looks in a list or on a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from conversations.models import Conversation

TITLE_SHOWN = 60
LINE_SHOWN = 240
ID_END_SHOWN = 4


def moment(value: datetime | None) -> SafeString | None:
    """Return a time, UTC, to the second; the full one on pointing at it."""
    if value is None:
        return None
    value = value.astimezone(UTC)
    return format_html(
        '<time class="whitespace-nowrap" datetime="{}" title="{}">{}</time>',
        value.isoformat(),
        f"{value:%Y-%m-%d %H:%M:%S.%f} UTC",
        f"{value:%Y-%m-%d %H:%M:%S}",
    )


def stacked(value: datetime | None) -> SafeString | None:
    """Return a time for a narrow column: the day above, the time of day below."""
    if value is None:
        return None
    value = value.astimezone(UTC)
    return format_html(
        '<time class="admin-stacked" datetime="{}" title="{}">{}<br>{}</time>',
        value.isoformat(),
        f"{value:%Y-%m-%d %H:%M:%S.%f} UTC",
        f"{value:%Y-%m-%d}",
        f"{value:%H:%M:%S}",
    )


def yes_or_no(is_so: bool) -> str:
    """Return an answer that is neither good nor bad."""
    return "Yes" if is_so else "No"


def narrow(text: str | None, shown: str | None = None) -> SafeString | None:
    """Return a text that is cut where the column of a list ends; the whole one on pointing at it."""
    if not text:
        return None
    return format_html(
        '<span class="admin-narrow" title="{}">{}</span>', text, shown or cut(text, LINE_SHOWN)
    )


def number(value: int) -> str:
    """Return a number with its thousands apart."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def cut(text: str, limit: int = TITLE_SHOWN) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def shortened(text: str) -> SafeString:
    """Return an id with only its ends seen, whose whole is on pointing at it, and in what is copied of it."""
    if len(text) <= 2 * ID_END_SHOWN + 2:
        return format_html('<code class="admin-id" title="{}">{}</code>', text, text)
    return format_html(
        '<code class="admin-id" title="{}">{}<span class="admin-id-middle">{}</span>{}</code>',
        text,
        text[:ID_END_SHOWN],
        text[ID_END_SHOWN:-ID_END_SHOWN],
        text[-ID_END_SHOWN:],
    )


def code(text: str) -> SafeString:
    """Return an id or a digest whole; it breaks where a line ends."""
    return format_html('<code class="break-all">{}</code>', text)


def title_of(row: Conversation) -> str:
    """Return a conversation's title where a user chose it, otherwise the default one.

    A title that was made of messages is text of theirs: it is shown beside the events alone, where reading
    is recorded. `row` comes from `provisional_titles.noted`; without that, the title counts as made.
    """
    return str(row) if getattr(row, "is_title_made", True) else row.shown_title


def link(row: Model, text: str | None = None) -> SafeString:
    """Return a link to the row's page in the admin."""
    return format_html('<a class="admin-link" href="{}">{}</a>', page_of(row), text or cut(str(row)))


def page_of(row: Model) -> str:
    """Return the address of the row's page in the admin."""
    names: Any = row._meta
    return reverse(f"admin:{names.app_label}_{names.model_name}_change", args=[row.pk])
