"""The section of API tokens; the text of a token is shown once."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from conversations.exceptions import ConversationNotFound, QuotaExceeded
from convserver.serving import request_log
from convserver.web.conversations.messages import message_id
from convserver.web.settings_pages.forms import TokenForm
from convserver.web.settings_pages.page import not_saved, saved, show, users_form_of
from sessions_app.models import ApiToken
from sessions_app.storage import usage

MADE_BEFORE = (
    "This token was already created, and a token is shown only once. If you didn't copy it, revoke it."
)
COOKIE = "tokens-made"
HOUR_S = 3600


@users_form_of("tokens")
def create(request: HttpRequest, user_id: int) -> HttpResponse:
    """Create a token and show its text, which no other page shows: the answer is not a redirect."""
    # A reload of the answer sends the form again, which creates no second token.
    form = TokenForm(request.user, request.POST)
    if not form.is_valid():
        return show(request, form)
    form_id, made = message_id(request), _made(request)
    if form_id in made:
        return not_saved(request, "tokens", MADE_BEFORE)
    try:
        row, text = usage.issue_token(user_id, form.cleaned_data["label"], form.grant)
    except ConversationNotFound:
        form.add_error("conversation", "This conversation no longer exists.")
        return show(request, form)
    except usage.TokenNameTaken as error:
        form.add_error("label", str(error))
        return show(request, form)
    except QuotaExceeded as error:
        form.add_error("label", str(error))
        request_log.name_code(error.code)
        refused = show(request, form)
        refused.status_code, refused["Retry-After"] = 429, str(error.retry_after_s)
        return refused
    answer = show(request, new_token=text, new_token_name=row.name)
    _keep(request, answer, [form_id, *made])
    return answer


@users_form_of("tokens")
def revoke(request: HttpRequest, user_id: int) -> HttpResponse:
    rows = ApiToken.objects.valid().filter(user_id=user_id)
    row = rows.called(request.POST.get("token", "")).first()
    if row is None:
        return not_saved(request, "tokens", "This token no longer exists.")
    row.revoke()
    return saved(request, "tokens", f"{row.name} is revoked.")


def _made(request: HttpRequest) -> list[str]:
    """Return the ids of this browser's forms that created a token within the hour, the newest first."""
    kept = request.get_signed_cookie(COOKIE, default="", max_age=HOUR_S)
    return kept.split() if kept else []


def _keep(request: HttpRequest, answer: HttpResponse, forms: list[str]) -> None:
    # The ids reveal nothing of the tokens.
    answer.set_signed_cookie(
        COOKIE,
        " ".join(forms[:8]),  # a reload is of one of the newest forms, and cookies are bounded
        max_age=HOUR_S,
        path=reverse("settings-tokens"),
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )
