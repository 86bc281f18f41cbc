"""The page on which an answer is rated, with a reason."""

from __future__ import annotations

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.exceptions import EventNotFound
from convserver.web.pages import named, number_in, page, person, refusal
from sessions_app.live import ratings
from sessions_app.models import Feedback, Polarity


class RatingForm(forms.Form):
    polarity = forms.ChoiceField(choices=Polarity.choices)
    reason = forms.CharField(max_length=Feedback.REASON_MAX_LENGTH, required=False)


@require_http_methods(["GET", "HEAD", "POST"])
@person
def rating(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show the form for an answer, or store what it says and show the answer again."""
    conversation = access.writable(request.user, conversation_id)
    seq = number_in(request.POST.get("seq") or request.GET.get("seq"))
    try:
        text = ratings.require_answer(conversation, -1 if seq is None else seq)
    except EventNotFound as error:
        raise Http404 from error
    except ratings.NotAnAnswer as error:
        return refusal(error)
    form, status = RatingForm(request.POST or None), 200
    if request.method == "POST":
        if request.POST.get("polarity") == "none":
            ratings.take_back(conversation, seq or 0)
            return _back(conversation_id, seq)
        if form.is_valid():
            told = form.cleaned_data
            ratings.rate(conversation, seq or 0, polarity=Polarity(told["polarity"]), reason=told["reason"])
            return _back(conversation_id, seq)
        status = 400
    stored = ratings.rating_of(conversation, seq or 0)
    context = {
        "conversation": named(conversation),
        "seq": seq,
        "excerpt": text[:200],
        "stored": stored,
        "polarity": request.GET.get("polarity") or (stored and stored["polarity"]),
        "reason": request.POST.get("reason", stored["reason"] if stored else ""),
        "reason_max": Feedback.REASON_MAX_LENGTH,
        "problem": "" if status == 200 else "Choose thumbs up or down, and a shorter reason.",
    }
    return page(request, "web/rating.html", context, status=status)


def _back(conversation_id: str, seq: int | None) -> HttpResponse:
    return redirect(f"{reverse('conversation', args=[conversation_id])}?around={seq}#e{seq}")
