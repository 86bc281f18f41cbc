"""The unfinished answer of an agent as HTML, until the page shows the stored message."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from conversations import access
from conversations.events import ConversationRef
from convserver.rendering.text.previews import Preview, Previews
from convserver.web.pages import number_in, person
from sessions_app.live.feed import unfinished_answer, unfinished_through

_previews = Previews()


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownAnswer:
    """The parts of an answer that a page lacks."""

    answer: str
    version: int
    through: int  # the index of the last piece that is shown
    kept: int  # the number of parts that the page keeps; `parts` replace the others
    parts: list[SafeString]
    finished: int  # the number of finished parts, which is all except the growing one
    reasoning: str  # the part of the reasoning that the page lacks
    reasoning_from: int  # the characters of the reasoning that the page keeps
    reasoning_through: int
    wait_ms: int  # the time after which the page may ask again


@require_safe
@person
def answer(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return the parts of the unfinished answer that the page lacks; 204 if there is none."""
    found = access.readable(request.user, conversation_id)
    named = unfinished_through(found)
    if named is None:
        return HttpResponse(status=204)
    preview = _previews.of(f"{found.pk} {named[0]}")
    with preview.lock:  # two readers must not render the same text, nor one read half of it
        if preview.through < named[1] and not _grow(preview, found, named[0]):
            return HttpResponse(status=204)
        shown = _shown(request, preview, named[0])
    return render(request, "web/conversation/answer.html", {"shown": shown})


def _grow(preview: Preview, conversation: ConversationRef, answer: str) -> bool:
    """Update the preview from the stored answer; return whether it is still unfinished."""
    row = unfinished_answer(conversation)
    if row is None or row["answer"] != answer:
        return False
    preview.grow(row["text"], row["through"], reasoning=row["reasoning"])
    return True


def _shown(request: HttpRequest, preview: Preview, answer: str) -> ShownAnswer:
    # Of another answer, or of finished parts that have changed, the page gets everything anew.
    is_same = request.GET.get("answer") == answer and request.GET.get("version") == str(preview.version)
    kept = _kept(request, "parts", len(preview.finished)) if is_same else 0
    known = _kept(request, "reasoning", len(preview.reasoning)) if is_same else 0
    return ShownAnswer(
        answer=answer,
        version=preview.version,
        through=preview.through,
        kept=kept,
        # No empty part: a style rule for it would make the browser restyle the page at each word.
        parts=[*preview.finished[kept:], *filter(None, [preview.open])],
        finished=len(preview.finished),
        reasoning=preview.reasoning[known:],
        reasoning_from=known,
        reasoning_through=len(preview.reasoning),
        wait_ms=round(1000 * preview.wait_s()),
    )


def _kept(request: HttpRequest, name: str, most: int) -> int:
    """Return the length that the page already shows, capped at the answer's length."""
    return min(number_in(request.GET.get(name)) or 0, most)
