"""How one value looks in a list or on a page, and the columns that show one value of their row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, TypeVar

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from conversations.models import Conversation

ID_END_SHOWN = 4
LISTED_MAX = 20  # a cell lists at most this many rows
SELECTED_MAX = 100  # staff act on at most this many rows: a request may wait seconds for each of them
NAMED_MAX = 5  # a message or a banner names at most this many

Look = Callable[[Any], Any]
Cell = TypeVar("Cell", bound=Callable[..., tuple[str, str] | None])


def column(description: str, value: str | Look, look: Look | None = None, *, empty: str | None = None) -> Any:
    """Return a column, for lists and pages, with one value of the row.

    `value` is the path of the row's attribute, or a function of the row; `look` shapes what is not None;
    `empty` is shown for None.
    """
    value_of = attrgetter(value) if isinstance(value, str) else value

    @admin.display(description=description)
    def cell(_admin: object, row: Model) -> Any:
        found = value_of(row)
        if found is None:
            return empty
        return look(found) if look else found

    vars(cell).update(path=value)  # for the test that every named attribute exists
    return cell


def label(description: str, colours: Mapping[str, str]) -> Callable[[Cell], Cell]:
    """Make a column of coloured labels of a method that returns the key of a colour and the text."""

    def labelled(cell: Cell) -> Cell:
        vars(cell).update(short_description=description, label=colours)
        return cell

    return labelled


def moment(value: datetime) -> SafeString:
    """Return a time in UTC, to the second; its tooltip has the microseconds."""
    return _time(value, "whitespace-nowrap", "%Y-%m-%d %H:%M:%S")


def stacked(value: datetime) -> SafeString:
    """Return a time for a narrow column: the day above, the time of day below."""
    return _time(value, "admin-stacked", "%Y-%m-%d<br>%H:%M:%S")


def _time(value: datetime, css_class: str, shape: str) -> SafeString:
    value = value.astimezone(UTC)
    return format_html(
        '<time class="{}" datetime="{}" title="{}">{}</time>',
        css_class,
        value.isoformat(),
        f"{value:%Y-%m-%d %H:%M:%S.%f} UTC",
        mark_safe(value.strftime(shape)),  # noqa: S308  # digits, and the break of the shape
    )


def yes_or_no(is_so: bool) -> str:
    """Return an answer that is neither good nor bad."""
    return "Yes" if is_so else "No"


def narrow(text: str | None, shown: str | None = None) -> SafeString | None:
    """Return a text that is cut where the column of a list ends; its tooltip has the whole text."""
    if not text:
        return None
    return format_html('<span class="admin-narrow" title="{}">{}</span>', text, shown or cut(text, 240))


def process(pid: int | None, host: str) -> SafeString | None:
    """Return which process it is; its tooltip also tells hosts of one name apart."""
    return narrow(f"{pid} on {host}", f"{pid} on {host.partition(' ')[0]}") if pid else None


def number(value: int) -> str:
    """Return a number with its thousands apart."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def counted(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def bounded(count: int, most: int) -> str:
    """Return a number of rows that were counted up to `most`, and one more to know whether there are more."""
    return f"more than {number(most)}" if count > most else number(count)


def lasting(time: timedelta) -> str:
    """Return a length of time in its two largest units."""
    seconds = max(int(time.total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def milliseconds(value: float) -> str:
    """Return a short length of time in milliseconds."""
    if value < 0.1:
        return "under 0.1 ms"
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def size(count: int) -> str:
    """Return a number of bytes in the largest unit that leaves at least one of it."""
    value = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit in ("bytes", "KB") else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"


def cut(text: str, limit: int = 60) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def shortened(text: str) -> SafeString:
    """Return a shortened id; the full id is its tooltip and what is copied."""
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
    """Return a conversation's title if a user chose it, otherwise the default one.

    `row` comes from `provisional_titles.noted`; without that, the title counts as made.
    """
    # A title made of messages is their text: staff read that beside the events alone, where it is recorded.
    return str(row) if getattr(row, "is_title_made", True) else row.shown_title


def link(row: Model, text: str | None = None) -> SafeString:
    """Return a link to the row's page in the admin."""
    return format_html('<a class="admin-link" href="{}">{}</a>', page_of(row), text or cut(str(row)))


def page_of(row: Model) -> str:
    """Return the address of the row's page in the admin."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def list_of(model: type[Model]) -> str:
    """Return the address of the list of the model's rows in the admin."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
