"""The pages that change options of one conversation's agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from conversations import access
from convserver.web.pages import named, page
from sessions_app.settings import run_options


def options_page(
    request: HttpRequest,
    conversation_id: str,
    *,
    name: str,
    options: Iterable[str],
    form_of: Callable[..., forms.Form],
    saved: str,
) -> HttpResponse:
    """Show the form of these options with their present values, or store them and show it again.

    `name` is that of the page; `form_of` makes the form of a conversation from `data` or `initial`.
    """
    status = 200
    if request.method == "POST":
        conversation = access.writable(request.user, conversation_id)
        form = form_of(conversation, data=request.POST)
        if form.is_valid():
            run_options.change(conversation, form.cleaned_data)
            messages.success(request, saved, extra_tags=name)  # the tag is the section that shows it
            return redirect(f"conversation-{name}", conversation.public_id)
        status = 400
    else:
        conversation = access.readable(request.user, conversation_id)
        stored = run_options.options_of(conversation)
        form = form_of(conversation, initial={each: getattr(stored, each) for each in options})
    context = {"conversation": named(conversation), "form": form}
    return page(request, f"web/{name}.html", context, status=status)
