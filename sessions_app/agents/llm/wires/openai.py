"""Chat completions: OpenAI, and all servers that are compatible with it."""

from __future__ import annotations

from typing import Any

import httpx2
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.streams.openai import OpenAIAnswer
from sessions_app.agents.llm.streams.reasoning_details import MEMBER

ANSWER = OpenAIAnswer
SYSTEM = "openai"
"""The library's name of this API in signatures."""
TAKES_URLS = True


class ChatModel(OpenAIChatModel):
    """Sends `reasoning_details` back, which OpenRouter wants beside the calls of the same answer."""

    def _map_model_response(self, message: ModelResponse) -> Any:
        sent: Any = super()._map_model_response(message)
        calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
        details = [each for call in calls for each in (call.provider_details or {}).get(MEMBER, ())]
        return {**sent, MEMBER: details} if sent and details else sent


def model_at(target: Target, client: httpx2.AsyncClient) -> Model:
    # Without any key the library would look for one in the server's environment.
    provider = OpenAIProvider(base_url=target.base_url, api_key=target.key or "none", http_client=client)
    return ChatModel(target.name, provider=provider)


def settings_of(target: Target) -> dict[str, Any]:
    """Return how the user wants the model to be asked."""
    given = {"temperature": target.temperature, "openai_reasoning_effort": target.reasoning_effort or None}
    return {name: value for name, value in given.items() if value is not None}
