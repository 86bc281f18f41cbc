"""Code of an event, run in a frame that reads nothing of this site and sends nothing to another one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from secrets import token_urlsafe

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from conversations import access
from conversations.events import ConversationRef
from conversations.exceptions import ConversationNotFound
from conversations.log import reads
from convserver.rendering import MessageCard, read
from convserver.rendering.cards import CallCard
from convserver.rendering.text.pieces import runnable_in
from convserver.rendering.text.runnable import Language, Runnable
from convserver.web.pages import named, page, person

_INLINE = "'unsafe-inline'"
_MERMAID = Path(__file__).parents[2] / "static" / "vendor" / "mermaid.tiny.js"
"""The library `@mermaid-js/tiny` 11.17.2 as npm has it; its licence is beside it."""


@xframe_options_sameorigin
@require_safe
@person
def preview(request: HttpRequest, conversation_id: str, seq: str, digest: str) -> HttpResponse:
    """Return what runs, to a frame of ours; to anybody else a page with that frame and the code.

    Raise ConversationNotFound for code that the event does not have.
    """
    conversation = access.readable(request.user, conversation_id)
    found = _runnable(conversation, int(seq), digest)
    # A browser that does not say what it loads for is old; the frame of the page says so itself.
    if request.headers.get("Sec-Fetch-Dest", "iframe") == "iframe" and "frame" in request.GET:
        return _document(found)
    shown = {"conversation": named(conversation), "code": found.code, "language": found.language}
    return page(request, "web/preview.html", shown)


def _runnable(conversation: ConversationRef, seq: int, digest: str) -> Runnable:
    events = reads.read_some(conversation, seqs=[seq])
    card = read(events[0]) if events else None
    text = card.text if isinstance(card, MessageCard) else card.thought if isinstance(card, CallCard) else ""
    found = runnable_in(text).get(digest)
    if found is None:
        raise ConversationNotFound("There is no such code.")
    return found


@cache
def _mermaid() -> SafeString:
    # Within the document: its frame is of no site, so that this server gives it nothing else.
    return mark_safe(_MERMAID.read_text(encoding="utf-8"))  # noqa: S308 - of ours


def _document(found: Runnable) -> HttpResponse:
    nonce = token_urlsafe(16)
    context = {"found": found, "nonce": nonce}
    if found.language is Language.MERMAID:
        context["library"] = _mermaid()
    # What people draw may style itself; only what they write as a page has scripts of its own.
    scripts = {
        Language.HTML: _INLINE,
        Language.SVG: "'none'",
        Language.MERMAID: f"'nonce-{nonce}'",
    }
    policy = (
        f"sandbox allow-scripts; default-src 'none'; script-src {scripts[found.language]}; "
        f"style-src {_INLINE}; img-src data: blob:; media-src data: blob:; font-src data:; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
    )
    return HttpResponse(
        render_to_string(f"web/previews/{found.language}.html", context),
        headers={
            "Content-Security-Policy": policy,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-DNS-Prefetch-Control": "off",
        },
    )
