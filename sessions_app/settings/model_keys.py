"""The stored key of a model that a client names without one: that of the same server, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from conversations.dialects import columns
from sessions_app.models import DocumentKind, UserSettings
from sessions_app.settings import user_documents, user_settings
from sessions_app.settings.setup_keys import MASK, unmasked
from sessions_app.settings.user_documents import DocumentNotFound
from sessions_app.settings.user_settings import SettingSecret

Model = Mapping[str, Any]

# The `usage_id` of a client that has taken the model from a profile.
_OF_PROFILE = re.compile(r"profile:([^:]+)(?::.*)?")


def with_stored_keys(user_id: int, model: Model, *, profile: str = "") -> dict[str, Any]:
    """Return an `llm` with the keys that were masked or left out, as they are stored for the same server."""
    sent = {name: unmasked(value, None) for name, value in model.items() if value != MASK}
    has_key = bool(sent.get("api_key"))
    if has_key and sent == model:
        return sent
    for stored in _stored(user_id, model, profile):
        if (has_key or stored.get("api_key")) and is_same_server(model, stored):
            filled: dict[str, Any] = unmasked(model, stored)
            return filled if has_key else {**filled, "api_key": stored["api_key"]}
    return sent


def is_same_server(one: Model, other: Model) -> bool:
    """Return whether two models are asked at the same server: a key is sent to no other."""
    bases = [str(each.get("base_url") or "").strip().rstrip("/").lower() for each in (one, other)]
    if any(bases):
        return bases[0] == bases[1]
    # Without an address, the provider's prefix decides whose server is asked.
    provider, slash, _ = str(one.get("model") or "").partition("/")
    return bool(slash) and str(other.get("model") or "").startswith(f"{provider}/")


def _stored(user_id: int, model: Model, profile: str) -> Iterator[Model]:
    """Yield the models that the user has stored: the named profiles first, then the settings, then all."""
    profiles = user_documents.documents(user_id, DocumentKind.MODEL_PROFILE)
    found = _OF_PROFILE.fullmatch(str(model.get("usage_id") or ""))
    # The profile that is changed is the first: its client sends back what it was shown of it.
    for name in (profile, found[1] if found else ""):
        if name in profiles:
            yield profiles[name]
    yield of_settings(user_id)
    yield from profiles.values()


def of_settings(user_id: int) -> Model:
    """Return the model of the user's settings, with its key."""
    settings = user_settings.settings_of(user_id) or UserSettings()
    key = user_settings.setting_secrets(user_id).get(SettingSecret.LLM_API_KEY)
    own = {"model": settings.llm_model, "base_url": settings.llm_base_url, "api_key": key}
    try:
        document = user_documents.document(user_id, DocumentKind.SETTINGS)
    except DocumentNotFound:
        return own
    # V1 clients store more of a model than V0's settings have columns for.
    return {**columns.fields(columns.fields(document.get("agent_settings")).get("llm")), **own}
