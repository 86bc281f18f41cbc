"""Resetting the access keys of conversations: one from its menu, all of a user's from the settings."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from conversations import access
from convserver.web.pages import takes_form, to_conversation
from convserver.web.settings_pages.page import form_of, saved
from sessions_app.identity import conversation_keys

RESET = "Access key reset. The previous key no longer works."
ALL_RESET = "All access keys are reset. The previous keys no longer work."


@takes_form(to_conversation)
def reset(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Rotate the key of one conversation, and confirm it on its page."""
    conversation = access.writable(request.user, conversation_id)
    conversation_keys.rotate(conversation)
    messages.success(request, RESET, extra_tags="key")
    return redirect("conversation", conversation.public_id)


@form_of("tokens")
def reset_all(request: HttpRequest) -> HttpResponse:
    """Rotate the keys of all of the user's conversations."""
    conversation_keys.rotate_all(access.pk_of(request.user))
    return saved(request, "tokens", ALL_RESET)
