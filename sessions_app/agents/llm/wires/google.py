"""Google's Gemini API."""

from __future__ import annotations

from typing import Any

import httpx2
from pydantic_ai.models import Model
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.streams.google import GoogleAnswer

ANSWER = GoogleAnswer
SYSTEM = "google"
"""The library's name of this API in signatures."""
TAKES_URLS = False  # the library would load images itself, from unchecked addresses


def model_at(target: Target, client: httpx2.AsyncClient) -> Model:
    provider = GoogleProvider(base_url=target.base_url, api_key=target.key or "none", http_client=client)
    return GoogleModel(target.name, provider=provider)


def settings_of(target: Target) -> dict[str, Any]:
    """Return how the user wants the model to be asked."""
    given = {"temperature": target.temperature, "thinking": target.reasoning_effort or None}
    return {name: value for name, value in given.items() if value is not None}
