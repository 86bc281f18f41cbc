"""The pages that change options of one conversation, and that of its network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.events import ConversationRef
from convserver.web.pages import named, page, person
from sessions_app.sandbox_network.allowed import NEVER
from sessions_app.sandbox_network.policy import NetworkPolicy
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


class NetworkForm(forms.Form):
    """Whether the programs of a conversation have a network."""

    network = forms.TypedChoiceField(
        required=False,
        label="Network of the sandbox",
        coerce=lambda value: value == "True",
        empty_value=None,
        help_text="It counts for terminals and commands that start from now on. A terminal that runs keeps "
        "what it has until it is reset.",
    )

    def __init__(self, _: ConversationRef, **values: Any) -> None:
        super().__init__(auto_id="network-%s", **values)
        policy = settings.CONFIGURATION.sandbox_settings.network
        default = "on" if policy == NetworkPolicy.ALLOWED else "off"
        choices = [("", f"The server's default: {default}"), ("False", "Off")]
        if policy != NetworkPolicy.OFF:
            choices.append(("True", "On: public web servers, by the server's proxy"))
        self.fields["network"].choices = choices  # type: ignore[attr-defined]
        self.fields["network"].error_messages["invalid_choice"] = (
            NEVER if policy == NetworkPolicy.OFF else "Choose one of the list."
        )
        self.never = NEVER if policy == NetworkPolicy.OFF else ""


@require_http_methods(["GET", "HEAD", "POST"])
@person
def network(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show whether programs of a conversation have a network, or switch it."""
    return options_page(
        request,
        conversation_id,
        name="network",
        options=["network"],
        form_of=NetworkForm,
        saved="Network saved. It counts for terminals and commands that start from now on.",
    )
