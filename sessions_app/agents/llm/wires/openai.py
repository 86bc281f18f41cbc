"""Chat completions: OpenAI, and all servers that are compatible with it."""

from __future__ import annotations

import httpx2
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.streams.openai import OpenAIAnswer

ANSWER = OpenAIAnswer
SYSTEM = "openai"
"""What the library calls this API where it checks whose a signature is."""
TAKES_URLS = True


def model_at(target: Target, client: httpx2.AsyncClient) -> Model:
    """Return the model of a target, asked by this client."""
    # Without any key the library would look for one in the server's environment.
    provider = OpenAIProvider(base_url=target.base_url, api_key=target.key or "none", http_client=client)
    return OpenAIChatModel(target.name, provider=provider)
