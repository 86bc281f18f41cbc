"""The section of the account: a new password for users who log in with one."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest

from convserver.configuration import AuthMode
from convserver.web.login import password_attempt

BY_PASSWORD = "django.contrib.auth.backends.ModelBackend"  # noqa: S105 - a class


class PasswordForm(PasswordChangeForm):
    """The current password, and twice the new one; wrong ones count together with those of the login."""

    name = "password"
    error_messages = {
        **PasswordChangeForm.error_messages,
        "password_incorrect": "The current password is wrong.",
        "password_mismatch": "The two new passwords don't match.",
    }

    def __init__(self, request: HttpRequest, data: Any = None) -> None:
        super().__init__(cast(User, request.user), data, auto_id=f"{self.name}-%s")
        self._request = request
        labels = {
            "old_password": "Current password",
            "new_password1": "New password",
            "new_password2": "New password again",
        }
        for name, label in labels.items():
            self.fields[name].label = label
            self.fields[name].help_text = ""
            self.fields[name].widget.attrs.pop("autofocus", None)  # it is one section of many
        self.fields["new_password1"].help_text = "At least 8 characters, and not a common one."

    def clean_old_password(self) -> str:
        """Check the password, unless there were too many wrong ones."""
        guesses = password_attempt(self._request, self.user.get_username().lower())
        password: str = super().clean_old_password()
        guesses.forget()
        return password

    def validate_password_for_user(self, user: User, password_field_name: str = "") -> None:
        # The error belongs to the first of the two fields.
        super().validate_password_for_user(user, "new_password1")

    def change(self) -> None:
        """Store the new password; all other sessions of the user end."""
        with transaction.atomic():  # with the receivers that end other access
            self.save()
        update_session_auth_hash(self._request, self.user)  # else this session would end, too


def has_password(request: HttpRequest) -> bool:
    """Return whether the user has logged in with a password."""
    return (
        settings.CONFIGURATION.auth is AuthMode.ACCOUNTS
        and request.session.get(BACKEND_SESSION_KEY) == BY_PASSWORD
        and cast(User, request.user).has_usable_password()
    )
