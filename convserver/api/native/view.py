"""The base of the native views, and the fields of their queries and bodies.

Refusals of a field say what it would take, and no text is made of a number.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.views import APIView

from conversations import access
from convserver.api.native.shapes import NATIVE


class NativeView(APIView):
    """A view of the native door, which checks queries and bodies by serializers."""

    door = NATIVE

    @property
    def user_id(self) -> int:
        """Return the key of the user who asks."""
        return access.pk_of(self.request.user)

    def checked_query(self, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """Return the values of the query. Raise ValidationError."""
        return checked(serializer(data=self.request.query_params))

    def checked_body(self, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """Return the values of the body. Raise ValidationError."""
        return checked(serializer(data=self.request.data))


def checked(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    """Return the values of what was given to the serializer. Raise ValidationError."""
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


class ChoiceField(serializers.ChoiceField):
    """One of a few values; a refusal lists them."""

    def __init__(self, choices: Any, **options: Any) -> None:
        super().__init__(choices, **options)
        _list_choices(self)


class MultipleChoiceField(serializers.MultipleChoiceField):
    """Any of a few values; a refusal lists them."""

    def __init__(self, choices: Any, **options: Any) -> None:
        super().__init__(choices=choices, **options)
        _list_choices(self)


def _list_choices(field: serializers.ChoiceField) -> None:
    listed = ", ".join(str(choice) for choice in field.choices)
    field.error_messages["invalid_choice"] = f'"{{input}}" is not one of {listed}.'


class Text(serializers.CharField):
    """A JSON string; the framework's own field also takes a number and stores its digits."""

    default_error_messages = {"invalid": "This must be a string."}

    def to_internal_value(self, data: Any) -> str:
        """Return the text. Raise ValidationError for anything but a string."""
        if not isinstance(data, str):
            self.fail("invalid")
        text: str = super().to_internal_value(data)
        return text


class Flag(serializers.BooleanField):
    """A JSON boolean; the framework's own field also takes `"yes"`, `"off"` and `1`."""

    default_error_messages = {"invalid": "This must be true or false."}

    def to_internal_value(self, data: Any) -> bool:
        """Return the boolean. Raise ValidationError for anything else."""
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


NO_OBJECT = "The body must be a JSON object."


class Body(serializers.Serializer[Any]):
    """A JSON object."""

    default_error_messages = {"invalid": NO_OBJECT}

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """Return what the fields make of the object. Raise ValidationError for anything else."""
        if data is None:  # the framework has a sentence of its own for this, in another place
            raise serializers.ValidationError({"non_field_errors": [NO_OBJECT]})
        return super().run_validation(data)
