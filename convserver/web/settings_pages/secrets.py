"""The section of a user's own secrets, with names and descriptions but without values."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from conversations.exceptions import ConversationError
from convserver.web.settings_pages.forms import KEY_MAX, SecretForm, as_pasted
from convserver.web.settings_pages.page import not_saved, saved, show, users_form_of
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SecretExists


@sensitive_post_parameters("value")
@users_form_of("secrets")
def add(request: HttpRequest, user_id: int) -> HttpResponse:
    form = SecretForm(request.POST)
    if not form.is_valid():
        return show(request, form)
    given = form.cleaned_data
    try:
        user_settings.create_custom_secret(
            user_id, given["label"], given["value"], description=given["description"]
        )
    except SecretExists:
        form.add_error(
            "label", "You already have a secret with this name. Change that one, or choose another name."
        )
        return show(request, form)
    except ConversationError as error:
        form.add_error("value", str(error))
        return show(request, form)
    return saved(request, "secrets", f"{given['label']} saved.")


@sensitive_post_parameters("value")
@users_form_of("secrets")
def change(request: HttpRequest, user_id: int) -> HttpResponse:
    """Replace the value of a secret, or delete it."""
    name = request.POST.get("name", "")
    value = as_pasted(request.POST.get("value", ""))
    try:
        if request.POST.get("do") == "delete":
            user_settings.remove_custom_secret(user_id, name)
            return saved(request, "secrets", f"{name} deleted.")
        # As the form of a new secret refuses them; PostgreSQL stores no zero byte.
        if not value or len(value) > KEY_MAX or "\0" in value:
            return not_saved(request, "secrets", f"{name} was not changed. Enter a new value of up to 16 kB.")
        user_settings.replace_custom_secret(user_id, name, value)
    except ConversationError as error:
        return not_saved(request, "secrets", str(error))
    return saved(request, "secrets", f"{name} updated.")
