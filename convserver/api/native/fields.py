"""Fields of queries and bodies that say in their refusals what they would take."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


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
