"""Names of models as OpenHands writes them: a provider, a slash, and the provider's own name."""

from __future__ import annotations

from urllib.parse import urlsplit

from sessions_app.outbound.model_trial import KNOWN_SERVERS

# These have no address of their own: a user enters one.
_GATEWAYS = frozenset({"openhands", "litellm_proxy", "vllm", "hosted_vllm", "lm_studio"})
_PREFIXES = {name: name for name in (*KNOWN_SERVERS, *_GATEWAYS, "ollama")} | {
    "google": "gemini",
    "ollama_chat": "ollama",
}
_FAMILIES = {"claude": "anthropic", "gemini": "gemini", "gpt-": "openai", "o1": "openai", "o3": "openai"}
"""Providers of names without a slash, by the beginnings of the names."""


def parts_of(model: str) -> tuple[str, str]:
    """Return the provider, empty for an unknown one, and the model's name there."""
    prefix, slash, name = model.partition("/")
    if slash:
        # Many servers have names with a slash.
        return (_PREFIXES[prefix], name) if prefix in _PREFIXES else ("", model)
    return next((family for beginning, family in _FAMILIES.items() if model.startswith(beginning)), ""), model


def are_of_one_provider(model: str, other: str) -> bool:
    """Return whether two models have the same known provider."""
    # Two unknown ones are not the same: a key would be sent to a server that it was not entered for.
    provider, _ = parts_of(model)
    return provider != "" and provider == parts_of(other)[0]


def provider_at(base_url: str) -> str:
    """Return the known provider whose server this is; empty for any other address."""
    host = urlsplit(base_url).netloc
    return next((name for name, url in KNOWN_SERVERS.items() if urlsplit(url).netloc == host), "")
