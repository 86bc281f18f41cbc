"""The limits of a user's agents in conversations without their own limits."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from convserver.web.settings_pages.forms import LimitsForm
from convserver.web.settings_pages.page import saved, show, users_form_of
from sessions_app.settings import user_settings


@users_form_of("limits")
def change(request: HttpRequest, user_id: int) -> HttpResponse:
    """Store the limits; an empty field means the default."""
    form = LimitsForm(request.POST)
    if not form.is_valid():
        return show(request, form)
    user_settings.change_settings(user_id, form.cleaned_data, secrets={})  # keeps the keys
    return saved(request, "limits", "Saved.")
