"""The ways in for people: a name and a password, or the server's key once."""

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
from convserver.passwords import line
from convserver.passwords.login_throttle import (
    BUSY,
    TOO_MANY,
    WINDOW_S,
    AccountAttempts,
    Guesses,
    said_of_attempts,
)
from convserver.serving import request_log
from sessions_app.identity import key_throttle
from sessions_app.identity.authentication import is_server_key, lets_everybody_in

GUESSED_TOO_OFTEN = "guessed_too_often"
NO_TURN = "no_turn"


def takes_key_alone() -> bool:
    """Say whether the server's key is the one way in: local mode has no passwords."""
    return settings.CONFIGURATION.auth == "local" and has_key()


def has_key() -> bool:
    """Say whether there is a server key to log in by."""
    return settings.CONFIGURATION.session_api_key is not None


def key_address(next_page: str) -> str:
    """Return where the key is asked for, on the way to a page."""
    query = f"?{urlencode({'next': next_page})}" if next_page else ""
    return f"{reverse('key')}{query}"


class CountedForm(AuthenticationForm):
    """A name and its password, for whatever door: one that has heard too many wrong ones speaks for all."""

    def clean(self) -> dict[str, Any]:
        """Judge them, unless there were too many wrong ones."""
        if self.request is not None and line.is_refused(self.request):
            raise ValidationError(BUSY, code=NO_TURN)
        name = self.cleaned_data.get("username", "").lower()
        guesses = Guesses(self.request or HttpRequest(), f"password {name}")
        if not guesses.may_go_on():
            raise ValidationError(TOO_MANY, code=GUESSED_TOO_OFTEN)
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError as error:
            raise _with_attempts_left(error, guesses) from error
        guesses.forget()
        AccountAttempts(name).forget()
        return cleaned


def _with_attempts_left(error: ValidationError, guesses: Guesses) -> ValidationError:
    """Return the error, which also says how many attempts are left where they are few."""
    said = " ".join(error.messages)
    return ValidationError(said + said_of_attempts(guesses.left()), code=error.code)


class LoginForm(CountedForm):
    """A name and its password."""

    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "Wrong username or password.",
    }


class KeyForm(forms.Form):
    """The server's key."""

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
        """Judge it, unless there were too many wrong ones; it is not kept."""
        key = self.cleaned_data["key"]
        guesses = Guesses(self._request, "server key")
        if not guesses.may_go_on():
            raise ValidationError(TOO_MANY, code=GUESSED_TOO_OFTEN)
        self._user = authenticate(self._request, server_key=key)
        if self._user is None and is_server_key(key):
            raise ValidationError(
                "The key is right, but this server has no account yet that it could log in to. An "
                f"administrator can create one with: {program.command()} manage createsuperuser"
            )
        if self._user is None:
            raise ValidationError("Wrong key." + said_of_attempts(guesses.left()))
        guesses.forget()

    def get_user(self) -> AbstractBaseUser | None:
        """Return whom the key has let in."""
        return self._user


def tell_when_to_return(answer: HttpResponse, form: forms.BaseForm) -> None:
    """Make the answer a 429 with `Retry-After` if the form was not judged."""
    waits = (
        (GUESSED_TOO_OFTEN, key_throttle.CODE, WINDOW_S),
        (NO_TURN, "too_many_requests", line.RETRY_AFTER_S),
    )
    for problem, code, wait_s in waits:
        if any(form.has_error(name, problem) for name in form.errors):
            request_log.name_code(code)
            answer.status_code = 429
            answer["Retry-After"] = str(wait_s)


class _WayIn(LoginView):
    """What both ways have in common."""

    def form_invalid(self, form: forms.BaseForm) -> HttpResponse:
        """Say what was wrong; with 429 once there were too many."""
        answer = super().form_invalid(form)  # type: ignore[arg-type]
        tell_when_to_return(answer, form)
        return answer


class PasswordView(_WayIn):
    """Ask for a name and a password."""

    template_name = "web/login.html"
    form_class = LoginForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Lead to the key where it is the one way in, and on where everybody is let in."""
        if takes_key_alone():
            return redirect(key_address(self.get_redirect_url()))
        if lets_everybody_in():
            return redirect(self.get_redirect_url() or "home")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Offer the other way, where there is one."""
        key = key_address(self.get_redirect_url()) if has_key() else ""
        return super().get_context_data(**kwargs, key_address=key)


class KeyView(_WayIn):
    """Ask once for the server's key, and keep its session."""

    template_name = "web/key.html"
    form_class = KeyForm  # type: ignore[assignment]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Lead to where one can go without a key, if there is none."""
        if not has_key():
            return redirect("login" if settings.CONFIGURATION.auth == "accounts" else "home")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Offer the other way, where there is one."""
        query = f"?{urlencode({'next': self.get_redirect_url()})}" if self.get_redirect_url() else ""
        return super().get_context_data(
            **kwargs, login_address="" if takes_key_alone() else reverse("login") + query
        )
