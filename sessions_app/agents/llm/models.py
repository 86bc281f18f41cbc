"""Models by their names as OpenHands writes them: the address, the wire, and the name there."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import httpx

from sessions_app.agents.base import AgentFailure
from sessions_app.agents.llm import names
from sessions_app.agents.llm.choice import ModelChoice
from sessions_app.outbound.model_trial import KNOWN_SERVERS, InvalidBaseUrl, checked_base_url
from sessions_app.settings.model_notes import ModelPrice

OLLAMA = "http://localhost:11434/v1"

NO_SERVER = "The provider can't be told from the model's name. Enter the base URL in Settings."
NO_KEY = "The model needs an API key. Enter one in Settings."
BAD_KEY = "The key of the model contains invalid characters. Copy it again, without line breaks."


class Wire(StrEnum):
    """The API of a server; the value is a module of `wires`."""

    OPENAI = "openai"
    """Chat completions."""
    ANTHROPIC = "anthropic"
    GOOGLE = "google"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A model at its server."""

    wire: Wire
    name: str
    """The server's name of the model."""
    base_url: str
    key: str = field(repr=False)
    is_operators: bool
    """Whether the address may be private."""
    full_name: str = ""
    """The name in the settings: usage is counted under it."""
    reasoning_effort: str = ""
    temperature: float | None = None
    price: ModelPrice | None = None
    """What the user says that it costs; it counts where no table knows the price."""


def target_of(choice: ModelChoice) -> Target:
    """Return the target of a choice. Raise AgentFailure with a sentence for the user."""
    if not (choice.key.isascii() and choice.key.isprintable()):
        raise AgentFailure(BAD_KEY, code="LLMAuthenticationError")
    provider, name = names.parts_of(choice.model)
    if choice.is_listed:
        provider, name = names.provider_at(choice.base_url), choice.model
    base_url = _base_url(choice, provider)
    wire = _wire(provider, base_url)
    if not choice.key and not choice.base_url and provider != "ollama":
        raise AgentFailure(NO_KEY, code="LLMAuthenticationError")
    return Target(
        wire=wire,
        name=name,
        base_url=_root(base_url, wire),
        key=choice.key,
        is_operators=choice.is_operators,
        full_name=choice.model,
        reasoning_effort=choice.reasoning_effort,
        temperature=choice.temperature,
        price=choice.price,
    )


def _base_url(choice: ModelChoice, provider: str) -> str:
    if choice.base_url:
        try:
            # An operator's address may be private, and was checked at the start.
            base_url = choice.base_url if choice.is_operators else checked_base_url(choice.base_url)
        except InvalidBaseUrl as error:
            raise AgentFailure(str(error), code="LLMBadRequestError") from error
        is_root = provider == "ollama" and httpx.URL(base_url).path in ("", "/")
        return f"{base_url.rstrip('/')}/v1" if is_root else base_url
    if provider == "ollama":
        return OLLAMA
    if provider not in KNOWN_SERVERS:
        raise AgentFailure(NO_SERVER, code="LLMBadRequestError")
    return "https://generativelanguage.googleapis.com" if provider == "gemini" else KNOWN_SERVERS[provider]


def _wire(provider: str, base_url: str) -> Wire:
    if provider == "anthropic":
        return Wire.ANTHROPIC
    if provider == "gemini" and not base_url.endswith("/openai"):
        return Wire.GOOGLE
    return Wire.OPENAI


def _root(base_url: str, wire: Wire) -> str:
    """Return the address for the wire's library."""
    match wire:  # two of the libraries add the version themselves
        case Wire.ANTHROPIC:
            return base_url.removesuffix("/v1")
        case Wire.GOOGLE:
            return base_url.removesuffix("/v1beta").removesuffix("/v1")
        case Wire.OPENAI:
            return base_url
