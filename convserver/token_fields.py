"""What whoever creates a token is asked: what it can do, and for how long; in Settings and in the admin."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.utils import timezone

from sessions_app.models import Grant, Scope

EVERYTHING = "Everything"
"""What is said of a token that can do all that its user can."""


class GrantFields(forms.Form):
    """The fields for what a new token opens."""

    rights = forms.ChoiceField(
        choices=[
            ("", EVERYTHING),
            ("read write run", "Everything but settings, secrets and tokens"),
            ("read run", "Read, and talk to the agent"),
            ("read", "Read only"),
        ],
        required=False,
        label="Access",
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
            scopes=[Scope(each) for each in rights] or tuple(Scope),
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        )
