"""The body of a decision about calls that wait for the user."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from convserver.api.native.view import Body, ChoiceField, Flag, Text
from sessions_app.models import AllowedFor, UnknownAnswer


class DecisionSerializer(Body):
    """The body that decides about a call that waits for approval, or whose outcome is unknown."""

    accept = Flag(default=None, help_text="Required without `outcome`.")
    reason = Text(default="", allow_blank=True)
    outcome = ChoiceField(
        UnknownAnswer.choices,
        default=None,
        help_text="What to do about a call whose outcome is unknown; by default an approval runs it again "
        "and a rejection skips it. 409 if no call's outcome is unknown.",
    )
    text = Text(default="", allow_blank=True, help_text="With `outcome`: what has happened, or why.")
    always = ChoiceField(
        AllowedFor.choices,
        default=None,
        help_text="With an approval: later calls of the tool run without one, in this `conversation` or in "
        "all of the `user`. 409 if calls of several tools wait, or the tool needs an approval each time.",
    )
    seq = serializers.IntegerField(
        default=None, allow_null=True, help_text="The seq of the call; 409 if another one is pending."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the decision. Raise ValidationError if nothing is decided."""
        if attrs["accept"] is None and attrs["outcome"] is None:
            raise serializers.ValidationError({"accept": ["This is required without `outcome`."]})
        if attrs["always"] is not None and (attrs["outcome"] is not None or not attrs["accept"]):
            raise serializers.ValidationError({"always": ["This needs `accept` to be true."]})
        return attrs
