"""The limits of a user's agents in conversations without their own limits."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from conversations import access
from convserver.web.settings_pages.forms import LimitsForm
from convserver.web.settings_pages.page import form_of, saved, show
from sessions_app.settings import user_settings


@form_of("limits")
def change(request: HttpRequest) -> HttpResponse:
    """Store the limits; an empty field means the default."""
    form = LimitsForm(request.POST)
    if not form.is_valid():
        return show(request, form)
    user_settings.change_settings(access.pk_of(request.user), form.cleaned_data, secrets={})  # keeps the keys
    return saved(request, "limits", "Saved.")
