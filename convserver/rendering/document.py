"""A conversation as one HTML file without scripts that loads nothing from any server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

from conversations.events import EventEnvelope
from convserver.rendering.page import render_page
from convserver.rendering.text import visible

# The document has no scripts and loads nothing, so it needs these styles alone, inside it.
_STYLES = ("web/document.css", "web/events.css", "web/calls.css", "web/code.css")


def beginning(*, title: str, facts: Mapping[str, object]) -> str:
    """Return the file up to the first event."""
    shown = [(name, visible.name(str(value))) for name, value in facts.items() if value not in (None, "")]
    context = {"title": visible.name(title), "facts": shown, "styles": styles()}
    return render_to_string("web/events/document_beginning.html", context)


def articles(events: Sequence[EventEnvelope], conversation_id: str) -> str:
    """Return events with their complete texts."""
    return f"{render_page(events, conversation_id=conversation_id, whole=True).html}\n"


def end() -> str:
    return "</main>\n</body>\n</html>\n"


@cache
def styles() -> SafeString:
    """Return the stylesheets of events as one text."""
    # By the finders: an installed package has its files elsewhere than a checkout.
    found = [finders.find(name) for name in _STYLES]
    texts = [Path(path).read_text(encoding="utf-8") for path in found if isinstance(path, str)]
    return mark_safe("\n".join(texts))  # noqa: S308 - files of this project
