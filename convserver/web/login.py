"""The log-ins for people: with a name and a password, or once with the server's key."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode

from convserver import program
from convserver.passwords import queue
from convserver.passwords.login_throttle import (
    BUSY,
    TOO_MANY,
    WINDOW_S,
    AccountAttempts,
    Guesses,
)
from convserver.serving import request_log
from sessions_app.identity import key_throttle
from sessions_app.identity.authentication import is_server_key, lets_everybody_in

GUESSED_TOO_OFTEN = "guessed_too_often"
NO_SLOT = "no_slot"


def takes_key_alone() -> bool:
    """Return whether only the server's key lets in: local mode has no passwords."""
    return settings.CONFIGURATION.auth == "local" and has_key()


def has_key() -> bool:
    """Return whether the server has a key for log-ins."""
    return settings.CONFIGURATION.session_api_key is not None


def key_address(next_page: str) -> str:
    """Return the address that asks for the key and then leads to a page."""
    query = f"?{urlencode({'next': next_page})}" if next_page else ""
    return f"{reverse('key')}{query}"


def attempt(request: HttpRequest, what: str, *, too_many: str = TOO_MANY) -> Guesses:
    """Count an attempt at a password, key or code before it is checked. Raise ValidationError."""
    guesses = Guesses(request, what)
    if not guesses.may_go_on():
        raise ValidationError(too_many, code=GUESSED_TOO_OFTEN)
    return guesses


def password_attempt(request: HttpRequest, name: str) -> Guesses:
    """Count an attempt at the password of a name. Raise ValidationError, also if no slot computes it."""
    if queue.is_refused(request):
        raise ValidationError(BUSY, code=NO_SLOT)
    return attempt(request, f"password {name}")


class CountedForm(AuthenticationForm):
    """A name and its password; wrong ones are counted together with those of all other forms."""

    def clean(self) -> dict[str, Any]:
        # In lower case, so that other spellings of one name give no new attempts.
        name = self.cleaned_data.get("username", "").lower()
        guesses = password_attempt(self.request or HttpRequest(), name)
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError as error:
            said = " ".join(error.messages) + said_of_attempts(guesses.left())
            raise ValidationError(said, code=error.code) from error
        guesses.forget()
        AccountAttempts(name).forget()
        return cleaned


class LoginForm(CountedForm):
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "Wrong username or password.",
    }


class KeyForm(forms.Form):
    key = forms.CharField(
        label="Server key",
        max_length=1000,
        error_messages={"required": "Enter the key."},
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self._request = request
        self._user: AbstractBaseUser | None = None
        super().__init__(*args, **kwargs)

    def clean_key(self) -> None:
        """Check the key, unless there were too many wrong ones; the form does not keep it."""
        key = self.cleaned_data["key"]
        guesses = attempt(self._request, "server key")
        self._user = authenticate(self._request, server_key=key)
        # Told apart only for a client that knows the key.
        if self._user is None and is_server_key(key):
            raise ValidationError(
                "The key is right, but this server has no account yet that it could log in to. An "
                f"administrator can create one with: {program.command()} manage createsuperuser"
            )
        if self._user is None:
            raise ValidationError("Wrong key." + said_of_attempts(guesses.left()))
        guesses.forget()

    def get_user(self) -> AbstractBaseUser | None:
        return self._user


def tell_when_to_return(answer: HttpResponse, form: forms.BaseForm) -> None:
    """Turn the answer into a 429 with `Retry-After` if the password or key was not checked."""
    waits = (
        (GUESSED_TOO_OFTEN, key_throttle.CODE, WINDOW_S),
        (NO_SLOT, "too_many_requests", queue.RETRY_AFTER_S),
    )
    for problem, code, wait_s in waits:
        if any(form.has_error(name, problem) for name in form.errors):
            request_log.name_code(code)  # a page has no `code` for the log to find
            answer.status_code = 429
            answer["Retry-After"] = str(wait_s)


class _ThrottledLogin(LoginView):
    def form_invalid(self, form: forms.BaseForm) -> HttpResponse:
        answer = super().form_invalid(form)  # type: ignore[arg-type]
        tell_when_to_return(answer, form)
        return answer


class PasswordView(_ThrottledLogin):
    template_name = "web/login.html"
    form_class = LoginForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Redirect to the key where only the key lets in, and to the next page where no login is needed."""
        if takes_key_alone():
            return redirect(key_address(self.get_redirect_url()))
        if lets_everybody_in():
            return redirect(self.get_redirect_url() or "home")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        key = key_address(self.get_redirect_url()) if has_key() else ""
        return super().get_context_data(**kwargs, key_address=key)


class KeyView(_ThrottledLogin):
    """Ask once for the server's key; the session keeps the login."""

    template_name = "web/key.html"
    form_class = KeyForm  # type: ignore[assignment]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Redirect to a page that needs no key, if the server has none."""
        if not has_key():
            return redirect("login" if settings.CONFIGURATION.auth == "accounts" else "home")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query = f"?{urlencode({'next': self.get_redirect_url()})}" if self.get_redirect_url() else ""
        return super().get_context_data(
            **kwargs, login_address="" if takes_key_alone() else reverse("login") + query
        )


def said_of_attempts(left: int) -> str:
    """Return what follows "Wrong password.", after a space; empty while more than three attempts are left."""
    if left > 3:
        return ""
    if left == 0:
        return " That was the last attempt: wait five minutes before the next one."
    return f" {left} attempt{'' if left == 1 else 's'} left, then you have to wait five minutes."
