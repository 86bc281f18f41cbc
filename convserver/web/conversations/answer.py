"""The answer that an agent is giving, as HTML: what a page shows until the stored message takes its place."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from conversations import access
from conversations.models import ConversationRef
from convserver.rendering.text.previews import Preview, Previews
from convserver.web.pages import person
from sessions_app.live.feed import unfinished_answer, unfinished_through

_previews = Previews()


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownAnswer:
    """What a page gets of an answer: the parts that it lacks."""

    answer: str
    version: int
    through: int
    """The index of the last piece that is shown."""
    kept: int
    """How many parts the page keeps; the others are replaced by `parts`."""
    parts: list[SafeString]
    finished: int
    """How many parts are finished: all but the one that is still being written, if there is one."""
    reasoning: str
    """What the page lacks of the reasoning."""
    reasoning_from: int
    """How many characters of the reasoning the page keeps."""
    reasoning_through: int
    wait_ms: int
    """After how long the page may ask again."""


@require_safe
@person
def answer(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return the unfinished answer from the part on that the page lacks; 204 when none is being given."""
    found = access.readable(request.user, conversation_id)
    named = unfinished_through(found)
    if named is None:
        return HttpResponse(status=204)
    preview = _previews.of(f"{found.pk} {named[0]}")
    with preview.lock:
        if preview.through < named[1] and not _grow(preview, found, named[0]):
            return HttpResponse(status=204)
        shown = _shown(request, preview, named[0])
    return render(request, "web/conversation/answer.html", {"shown": shown})


def _grow(preview: Preview, conversation: ConversationRef, answer: str) -> bool:
    """Take in what is stored of the answer by now; say whether it is still being given."""
    row = unfinished_answer(conversation)
    if row is None or row["answer"] != answer:
        return False
    preview.grow(row["text"], row["through"], reasoning=row["reasoning"])
    return True


def _shown(request: HttpRequest, preview: Preview, answer: str) -> ShownAnswer:
    is_same = request.GET.get("answer") == answer and request.GET.get("version") == str(preview.version)
    kept = _kept(request, "parts", len(preview.finished)) if is_same else 0
    known = _kept(request, "reasoning", len(preview.reasoning)) if is_same else 0
    return ShownAnswer(
        answer=answer,
        version=preview.version,
        through=preview.through,
        kept=kept,
        parts=[*preview.finished[kept:], *filter(None, [preview.open])],
        finished=len(preview.finished),
        reasoning=preview.reasoning[known:],
        reasoning_from=known,
        reasoning_through=len(preview.reasoning),
        wait_ms=round(1000 * preview.wait_s()),
    )


def _kept(request: HttpRequest, name: str, most: int) -> int:
    """Return how much the page says that it has, as far as there is so much."""
    has = request.GET.get(name, "")
    return min(int(has), most) if has.isdecimal() and len(has) < 9 else 0
