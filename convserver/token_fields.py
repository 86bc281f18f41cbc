"""The form fields for a new token in the settings and in the admin: its rights, and how long it is valid."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.utils import timezone

from sessions_app.models import Grant, Scope
from sessions_app.models.access import ACCESS, ALL_SCOPES


class GrantFields(forms.Form):
    """The fields for what a new token opens."""

    rights = forms.ChoiceField(
        choices=[("" if scopes == ALL_SCOPES else scopes, name) for scopes, name in ACCESS.items()],
        required=False,
        label="Access",
        help_text="Only full access includes settings, secrets and tokens.",
    )
    days = forms.TypedChoiceField(
        choices=[
            ("", "Never"),
            ("7", "In 7 days"),
            ("30", "In 30 days"),
            ("90", "In 90 days"),
            ("365", "In a year"),
        ],
        coerce=int,
        empty_value=None,
        required=False,
        label="Expires",
    )

    @property
    def grant(self) -> Grant:
        """What was chosen."""
        days, rights = self.cleaned_data["days"], self.cleaned_data["rights"].split()
        return Grant(
            scopes=[Scope(each) for each in rights] or tuple(Scope),  # an empty choice is full access
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        )
