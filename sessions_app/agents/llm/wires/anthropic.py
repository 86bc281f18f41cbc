"""Anthropic's messages."""

from __future__ import annotations

from typing import Any

import httpx2
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.streams.anthropic import AnthropicAnswer

ANSWER = AnthropicAnswer
SYSTEM = "anthropic"
"""The library's name of this API in signatures."""
TAKES_URLS = True


def model_at(target: Target, client: httpx2.AsyncClient) -> Model:
    provider = AnthropicProvider(base_url=target.base_url, api_key=target.key or "none", http_client=client)
    return AnthropicModel(target.name, provider=provider)


def settings_of(target: Target) -> dict[str, Any]:
    """Return how the user wants the model to be asked."""
    given = {"temperature": target.temperature, "thinking": target.reasoning_effort or None}
    return {name: value for name, value in given.items() if value is not None}
