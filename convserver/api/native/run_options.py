"""Options: how the agent of one conversation runs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.native.shapes import NativeRunOptions, refusals
from convserver.api.native.view import Body, ChoiceField, Flag, NativeView, Text
from convserver.api.scopes import WRITES
from sessions_app.agents import registry
from sessions_app.agents.registry import AgentUnusable
from sessions_app.models import (
    AGENT_NAME_MAX_LENGTH,
    OPTION_MODEL_MAX_LENGTH,
    ReasoningEffort,
    RunOptions,
    UnknownOutcome,
    WhileWorking,
)
from sessions_app.sandbox_network.allowed import NEVER
from sessions_app.sandbox_network.policy import NetworkPolicy
from sessions_app.settings import run_options

# JavaScript has no larger whole numbers that are exact.
COUNT_MAX = 2**53 - 1
COST_MAX = 1_000_000.0


class Count(serializers.IntegerField):
    """A limit that is a whole number, or null for the default."""

    def __init__(self) -> None:
        super().__init__(min_value=1, max_value=COUNT_MAX, allow_null=True, required=False)


class Cost(serializers.FloatField):
    """A limit in US dollars, or null for the default."""

    def __init__(self) -> None:
        super().__init__(min_value=0, max_value=COST_MAX, allow_null=True, required=False)


@extend_schema_serializer(component_name="ChangedNativeRunOptions")
class OptionsSerializer(Body):
    """The body of a change: any of the options."""

    agent = Text(allow_blank=True, max_length=AGENT_NAME_MAX_LENGTH, required=False)
    model = Text(allow_blank=True, max_length=OPTION_MODEL_MAX_LENGTH, required=False)
    reasoning_effort = ChoiceField(ReasoningEffort.choices, allow_blank=True, required=False)
    temperature = serializers.FloatField(min_value=0, max_value=2, allow_null=True, required=False)
    while_working = ChoiceField(WhileWorking.choices, allow_blank=True, required=False)
    unknown_outcome = ChoiceField(UnknownOutcome.choices, allow_blank=True, required=False)
    max_turn_iterations = Count()
    max_iterations = Count()
    max_turn_tokens = Count()
    max_tokens = Count()
    max_turn_cost = Cost()
    max_cost = Cost()
    max_turn_seconds = Count()
    max_seconds = Count()
    network = Flag(allow_null=True, required=False)
    instructions = Text(allow_blank=True, max_length=RunOptions.INSTRUCTIONS_MAX_LENGTH, required=False)

    def validate_agent(self, name: str) -> str:
        """Return the name. Raise ValidationError unless it is empty or an agent's that can be chosen."""
        if name:
            try:
                registry.require_offered(name)
            except AgentUnusable as error:
                raise serializers.ValidationError(str(error)) from error
        return name

    def validate_network(self, is_on: bool | None) -> bool | None:
        """Return the choice. Raise ValidationError if the operator allows no network."""
        if is_on and settings.CONFIGURATION.sandbox_settings.network == NetworkPolicy.OFF:
            raise serializers.ValidationError(NEVER)
        return is_on

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a body without changes."""
        if not attrs:
            raise serializers.ValidationError(f"Give at least one of {', '.join(run_options.NAMES)}.")
        return attrs


class RunOptionsView(NativeView):
    """How the agent of one conversation runs."""

    needs = WRITES

    @extend_schema(responses={200: NativeRunOptions, **refusals(400, 404)})
    def get(self, request: Request, conversation_id: str) -> Response:
        """Return the options; an empty text and null leave the default."""
        conversation = access.readable(request.user, conversation_id)
        return Response(_shown(run_options.options_of(conversation)))

    @extend_schema(request=OptionsSerializer, responses={200: NativeRunOptions, **refusals(400, 404, 503)})
    def patch(self, request: Request, conversation_id: str) -> Response:
        """Change the options that are named; they count from the next turn on."""
        conversation = access.writable(request.user, conversation_id)
        body = self.checked_body(OptionsSerializer)
        return Response(_shown(run_options.change(conversation, body)))


def _shown(options: RunOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in run_options.NAMES}
