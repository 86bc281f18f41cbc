"""The page on which a person approves the login of a program, such as OpenHands' command line."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from convserver.token_fields import GrantFields
from convserver.web.login import attempt, said_of_attempts, tell_when_to_return
from convserver.web.pages import page, person, user_id_of
from sessions_app import device_logins
from sessions_app.identity.addresses import subscriber
from sessions_app.models import TOKEN_NAME_MAX_LENGTH, DeviceLogin
from sessions_app.models.access import ACCESS
from sessions_app.storage import usage

TOO_MANY = "Too many wrong codes. Wait five minutes, then start the login in the program again."
UNKNOWN = "No program waits under this code. Check it, or start the login in the program again."
NO_CODE = "A code has eight letters, for example BCDF-GHJK."
TOO_LATE = "This login was answered or expired before. Start it in the program again."
TYPED_MAX = 100


class DeviceCodeForm(forms.Form):
    """The code that the program shows; wrong ones are counted like wrong passwords."""

    user_code = forms.CharField(
        max_length=TYPED_MAX,
        label="Code",
        help_text="The program shows it, or has it in its link.",
        error_messages={"required": "Enter the code."},
        widget=forms.TextInput(
            attrs={
                "autocomplete": "off",
                "autocapitalize": "characters",
                "spellcheck": "false",
                "placeholder": "BCDF-GHJK",
            }
        ),
    )

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request
        self.found: DeviceLogin | None = None

    def clean_user_code(self) -> str:
        """Return the code as it is shown, and find its login."""
        code = device_logins.normal_user_code(self.cleaned_data["user_code"])
        if code is None:  # a misspelling, not an attempt at guessing: it is not counted
            raise ValidationError(NO_CODE)
        guesses = attempt(self._request, "device code", too_many=TOO_MANY)
        self.found = device_logins.called(code, user_id_of(self._request))
        if self.found is None:
            raise ValidationError(UNKNOWN + said_of_attempts(guesses.left()))
        # Every user can begin a login: knowing its code must give no new attempts at those of others.
        guesses.take_back()
        return code


class DeviceApprovalForm(GrantFields):
    """What the program may do, and for how long: never without an end."""

    name = forms.CharField(
        max_length=TOKEN_NAME_MAX_LENGTH,
        label="Name",
        help_text="You find the program under this name in Settings, API tokens.",
        error_messages={"required": "Enter a name."},
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    field_order = ("name", "rights", "days")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rights = cast(forms.ChoiceField, self.fields["rights"])
        # Nothing chosen means full access for a token of one's own: here it must be said.
        rights.choices, rights.required = [*ACCESS.items()], True
        rights.initial = " ".join(device_logins.DEFAULT_SCOPES)
        days = cast(forms.TypedChoiceField, self.fields["days"])
        offered = cast("list[tuple[str, str]]", days.choices)
        days.choices, days.required = [each for each in offered if each[0]], True
        days.initial = str(device_logins.DEFAULT_DAYS)


@require_http_methods(["GET", "HEAD", "POST"])
@person
def device(request: HttpRequest) -> HttpResponse:
    """Ask for a code, show whose it is, and approve or deny its login."""
    given = request.POST if request.method == "POST" else request.GET
    if request.method != "POST" and "user_code" not in given:
        return page(request, "web/device.html", {"code_form": DeviceCodeForm(request)})
    code_form = DeviceCodeForm(request, given)
    if not code_form.is_valid() or code_form.found is None:
        refused = page(request, "web/device.html", {"code_form": code_form}, status=400)
        tell_when_to_return(refused, code_form)
        return refused
    code, row = code_form.cleaned_data["user_code"], code_form.found
    # Answered in another tab, it is shown as it is now.
    if request.method == "POST" and row.is_pending:
        return _decided(request, code, row)
    return _shown(request, code, row)


def _decided(request: HttpRequest, code: str, row: DeviceLogin) -> HttpResponse:
    user_pk = user_id_of(request)
    if request.POST.get("decision") != "approve":
        is_first = device_logins.deny(row, user_pk)
        return _answered(request, "Denied. The program gets no access.", is_first=is_first)
    form = DeviceApprovalForm(request.POST)
    if not form.is_valid():
        return _shown(request, code, row, form)
    try:
        is_first = device_logins.approve(row, user_pk, form.grant, name=form.cleaned_data["name"])
    except usage.TokenNameTaken as error:
        form.add_error("name", str(error))
        return _shown(request, code, row, form)
    return _answered(request, "Approved. Go back to the program: it goes on by itself.", is_first=is_first)


def _shown(
    request: HttpRequest, code: str, row: DeviceLogin, refused: DeviceApprovalForm | None = None
) -> HttpResponse:
    """Show who asks, with a form to answer while the login is pending."""
    name = usage.free_name(user_id_of(request), device_logins.TOKEN_NAME)
    context = {
        "code": code,
        "login": row,
        "form": refused or DeviceApprovalForm(initial={"name": name}),
        # A code that another person has sent is how such logins are stolen (RFC 8628 §5.4): the page warns.
        "is_elsewhere": row.client != subscriber(request.META.get("REMOTE_ADDR", "")),
    }
    return page(request, "web/device.html", context, status=400 if refused else 200)


def _answered(request: HttpRequest, words: str, *, is_first: bool) -> HttpResponse:
    """Lead back to the empty page, which says once what was done."""
    if is_first:
        messages.success(request, words, extra_tags="device")
    else:
        messages.error(request, TOO_LATE, extra_tags="device")
    return redirect("device")
