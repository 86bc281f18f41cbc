"""The page of all sections."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from convserver.serving import request_log
from convserver.web.pages import page, person, takes_form, user_id_of
from convserver.web.settings_pages.forms import (
    ApprovalForm,
    CommandForm,
    Form,
    InstructionsForm,
    LimitsForm,
    ModelForm,
    ProviderForm,
    SecretForm,
    ServerForm,
    TokenForm,
)
from convserver.web.settings_pages.password import PasswordForm, has_password
from convserver.web.settings_pages.stored_servers import servers_of
from sessions_app.agents.chosen import uses_model
from sessions_app.identity.authentication import lets_everybody_in
from sessions_app.models import ApiToken
from sessions_app.settings import allowed_tools, model_providers, user_settings
from sessions_app.settings.user_settings import SettingSecret

FormView = Callable[[HttpRequest], HttpResponse]
UsersFormView = Callable[[HttpRequest, int], HttpResponse]


@require_safe
@person
def settings(request: HttpRequest) -> HttpResponse:
    return show(request)


def show(request: HttpRequest, *refused: Form | PasswordForm, **more: Any) -> HttpResponse:
    """Show all sections; refused forms with their errors, and the status 400."""
    user_id = user_id_of(request)
    stored = user_settings.settings_of(user_id)
    forms: dict[str, Form | PasswordForm] = {
        "model": ModelForm(
            initial={"model": stored.llm_model, "base_url": stored.llm_base_url} if stored else None
        ),
        **{shape.name: shape(initial=stored and vars(stored)) for shape in (InstructionsForm, LimitsForm)},
        "approval": ApprovalForm(initial={"asks": bool(stored and stored.confirmation_mode)}),
        **{shape.name: shape() for shape in (ProviderForm, ServerForm, CommandForm, SecretForm)},
        "token": TokenForm(request.user, only=request.GET.get("conversation", "")),
        **({"password": PasswordForm(request)} if has_password(request) else {}),
        **{form.name: form for form in refused},  # last: in the place of the empty one
    }
    context = {
        "forms": forms,
        "has_key": SettingSecret.LLM_API_KEY in user_settings.setting_secrets(user_id),
        "providers": model_providers.providers_of(user_id),
        "servers": servers_of(user_id),
        "allowed": allowed_tools.of_user(user_id),
        "secrets": user_settings.custom_secrets(user_id),
        "tokens": ApiToken.objects.valid()
        .filter(user_id=user_id)
        .select_related("conversation")
        .order_by("-pk")[:200],
        "has_keys": not lets_everybody_in(),
        "form_id": str(uuid4()),
        "asks_model": uses_model(),
        **more,
    }
    return page(request, "web/settings.html", context, status=400 if refused else 200)


def form_of(section: str) -> Callable[[FormView], FormView]:
    """Return a decorator for a view that takes a form of a section; its address leads to the section."""
    return takes_form(lambda request: back(section))


def users_form_of(section: str) -> Callable[[UsersFormView], FormView]:
    """Return a decorator like `form_of`, for a view that is given the key of the user, too."""

    def decorate(view: UsersFormView) -> FormView:
        @form_of(section)
        @wraps(view)
        def taken(request: HttpRequest) -> HttpResponse:
            return view(request, user_id_of(request))

        return taken

    return decorate


def saved(request: HttpRequest, section: str, words: str) -> HttpResponse:
    """Redirect to a section, which shows these words once."""
    # A redirect, so that a reload does not send the form again.
    messages.success(request, words, extra_tags=section)
    return back(section)


def not_saved(request: HttpRequest, section: str, words: str) -> HttpResponse:
    """Redirect to a section, which shows this error once."""
    messages.error(request, words, extra_tags=section)
    return back(section)


def busy(request: HttpRequest, section: str, words: str, code: str) -> HttpResponse:
    """Show the page with an error in a section and the status 429; the request log gets the code."""
    request_log.name_code(code)
    messages.error(request, words, extra_tags=section)
    shown = show(request)
    shown.status_code = 429
    return shown


def back(section: str) -> HttpResponse:
    return redirect(f"{reverse('settings')}#{section}")
