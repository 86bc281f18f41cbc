"""The section of the model, with a trial of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from conversations.exceptions import ConversationError
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from convserver.web.settings_pages.forms import ModelForm
from convserver.web.settings_pages.page import back, busy, not_saved, saved, show, users_form_of
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import SecretKind
from sessions_app.outbound.model_trial import Finding, ModelSetup, TrialUnderWay, try_model
from sessions_app.settings import placeholder_keys, user_settings
from sessions_app.settings.user_settings import SettingSecret


@in_lane(Lane.ABROAD)
@sensitive_post_parameters("key")
@users_form_of("model")
def change(request: HttpRequest, user_id: int) -> HttpResponse:
    """Store the model, and its key if one was typed; try it if the button says so."""
    form = ModelForm(request.POST)
    if not form.is_valid() or not _stored(user_id, form):
        return show(request, form)
    stored = " ".join(filter(None, ["Saved.", placeholder_keys.note_on(form.cleaned_data["key"])]))
    # Saved before the trial, which may take seconds or be refused: what was typed is not lost.
    if request.POST.get("do") != "test":
        return saved(request, "model", stored)
    try:
        finding = _finding(user_id)
    except TrialUnderWay as error:
        return busy(request, "model", f"{stored} {error}", error.code)
    if finding.is_fault:
        return not_saved(request, "model", f"{stored} {finding.text}")
    messages.success(request, f"{stored} {finding.text}", extra_tags="model begin")
    return back("model")


def _stored(user_id: int, form: ModelForm) -> bool:
    """Store the edited fields; return False after adding the reason to the form."""
    given = form.cleaned_data
    found = user_settings.settings_of(user_id)
    edits = form.edits(
        {"model": (found and found.llm_model) or "", "base_url": (found and found.llm_base_url) or ""}
    )
    if form.errors:
        return False
    values = {f"llm_{name}": value or None for name, value in edits.items()}
    # An empty field keeps the key, which the page never shows.
    secrets = {SettingSecret.LLM_API_KEY: given["key"]} if given["key"] or given["forgets_key"] else {}
    try:
        user_settings.change_settings(user_id, values, secrets=secrets)
    except ConversationError as error:
        form.add_error("key", str(error))
        return False
    return True


def _finding(user_id: int) -> Finding:
    stored = user_settings.settings_of(user_id)
    try:
        key = user_settings.secret_value(user_id, SecretKind.SETTING, name=SettingSecret.LLM_API_KEY)
    except SecretUnreadable:
        return Finding(is_fault=True, text="The saved key can't be read any more. Enter it again.")
    setup = ModelSetup(
        model=(stored and stored.llm_model) or "",
        base_url=(stored and stored.llm_base_url) or "",
        key=key or "",
    )
    return in_loop(try_model, user_id, setup)
