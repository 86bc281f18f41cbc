"""The user's own instructions for models, in all conversations."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from convserver.web.settings_pages.forms import InstructionsForm
from convserver.web.settings_pages.page import saved, show, users_form_of
from sessions_app.settings import user_settings


@users_form_of("instructions")
def change(request: HttpRequest, user_id: int) -> HttpResponse:
    """Store the instructions; an empty text removes them."""
    form = InstructionsForm(request.POST)
    if not form.is_valid():
        return show(request, form)
    user_settings.change_settings(user_id, form.cleaned_data, secrets={})  # keeps the keys
    return saved(request, "instructions", "Saved. They count from the next message on.")
