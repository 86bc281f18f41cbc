"""The section of the user's providers: servers of models, each with its key."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from conversations.exceptions import ConversationError
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from convserver.web.settings_pages.forms import ProviderForm
from convserver.web.settings_pages.page import not_saved, saved, show, users_form_of
from sessions_app.outbound.model_lists import ModelServer, lists_of
from sessions_app.settings import model_providers, placeholder_keys

SECTION = "providers"


@in_lane(Lane.ABROAD)
@sensitive_post_parameters("key")
@users_form_of(SECTION)
def add(request: HttpRequest, user_id: int) -> HttpResponse:
    """Store a provider, and tell what it lists."""
    form = ProviderForm(request.POST)
    if not form.is_valid():
        return show(request, form)
    given = form.cleaned_data
    try:
        model_providers.add(user_id, given["label"], base_url=given["base_url"], key=given["key"])
    except ConversationError as error:
        form.add_error("label", str(error))
        return show(request, form)
    return _listed(request, user_id, given["label"])


@in_lane(Lane.ABROAD)
@sensitive_post_parameters("key")
@users_form_of(SECTION)
def change(request: HttpRequest, user_id: int) -> HttpResponse:
    """Store another address or key, or remove the provider."""
    name = request.POST.get("label", "")
    if request.POST.get("do") == "delete":
        model_providers.remove(user_id, name)
        return saved(request, SECTION, f"{name} removed.")
    form = ProviderForm(request.POST)
    if not form.is_valid():
        return not_saved(request, SECTION, f"{name} was not changed. {next(iter(form.errors.values()))[0]}")
    given = form.cleaned_data
    # An empty field keeps the key, which the page never shows.
    key = given["key"] or ("" if given["forgets_key"] else None)
    try:
        model_providers.change(user_id, name, base_url=given["base_url"], key=key)
    except ConversationError as error:
        return not_saved(request, SECTION, f"{name} was not changed. {error}")
    return _listed(request, user_id, name)


def _listed(request: HttpRequest, user_id: int, name: str) -> HttpResponse:
    """Ask a provider that was saved for its list, and say how many models it has."""
    found = model_providers.provider(user_id, name)
    [listed] = in_loop(lists_of, user_id, [ModelServer(found.server, found.key)], is_fresh=True)
    note = placeholder_keys.note_on(found.key)
    if listed.problem:
        return not_saved(request, SECTION, " ".join(filter(None, [f"{name} saved.", note, listed.problem])))
    number = len(listed.models)
    told = f"It lists {number} model{'' if number == 1 else 's'}. Choose one at the message box."
    return saved(request, SECTION, " ".join(filter(None, [f"{name} saved.", note, told])))
