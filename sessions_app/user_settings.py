"""A user's settings and secrets: what doors and agents ask of them, and how a secret is stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import StrEnum
from typing import assert_never

from conversations.dialects import columns
from conversations.exceptions import ConversationError
from sessions_app.encryption import InvalidSecret, SecretUnreadable, seal
from sessions_app.git_providers.base import ProviderToken, ProviderType
from sessions_app.models import SECRET_NAME_MAX_LENGTH, Secret, SecretKind, SecretQuerySet, UserSettings

logger = logging.getLogger(__name__)

MODELS_WITHOUT_A_KEY = ("bedrock/", "lemonade/")
"""Models with these beginnings are opened by something else than a key (spec V0 §1.1, rule 6)."""


class SettingSecret(StrEnum):
    """The settings that are secrets (spec V0 §1.9); the tool servers, for what names them may hold keys."""

    LLM_API_KEY = "llm_api_key"
    SEARCH_API_KEY = "search_api_key"
    SANDBOX_API_KEY = "sandbox_api_key"
    MCP_CONFIG = "mcp_config"


class SettingsNotFound(ConversationError):
    """The user has set nothing yet."""

    code = "settings_not_found"


class ModelKeyMissing(ConversationError):
    """The user's settings hold no usable key for the model."""

    code = "model_key_missing"


def settings_of(user_id: int) -> UserSettings | None:
    """Return what the user has set; None before the first time."""
    return UserSettings.objects.filter(pk=user_id).first()


def has_model_key(user_id: int) -> bool:
    """Say whether the user's settings can open their model; `require_model_key` says why not."""
    try:
        require_model_key(user_id)
    except (SettingsNotFound, ModelKeyMissing):
        return False
    return True


def require_model_key(user_id: int) -> None:
    """Make sure that the user's settings can open their model (spec V0 §1.1, rule 6).

    Raise SettingsNotFound; ModelKeyMissing also for a stored key that cannot be opened any more.
    """
    settings = settings_of(user_id)
    if settings is None:
        raise SettingsNotFound("Nothing is set yet: choose a model first.")
    if (settings.llm_model or "").startswith(MODELS_WITHOUT_A_KEY):
        return
    keys = Secret.objects.of(user_id).named(SecretKind.SETTING, SettingSecret.LLM_API_KEY)
    if not any(value.strip() for _, value in _readable(keys)):
        raise ModelKeyMissing("The model needs a key: store one in the settings.")


def secret_value(user_id: int, kind: SecretKind, *, name: str) -> str | None:
    """Return one secret in clear, None if there is none. Raise SecretUnreadable."""
    secret = Secret.objects.of(user_id).named(kind, name).first()
    return secret.value.open() if secret else None


def provider_tokens(user_id: int) -> dict[ProviderType, ProviderToken]:
    """Return what opens the user's git providers; what cannot be read is left out and logged."""
    return {
        ProviderType(secret.name): ProviderToken(
            token=token, host=secret.host, user_id=secret.provider_user_id
        )
        for secret, token in _readable(Secret.objects.of(user_id).of_kinds(SecretKind.PROVIDER_TOKEN))
        if secret.name in list(ProviderType)
    }


def secrets_of(user_id: int) -> frozenset[str]:
    """Return the values that no event of the user's may show: provider tokens and custom secrets.

    None is blank; what cannot be read is left out and logged.
    """
    kinds = (SecretKind.PROVIDER_TOKEN, SecretKind.CUSTOM)
    return frozenset(
        value for _, value in _readable(Secret.objects.of(user_id).of_kinds(*kinds)) if value.strip()
    )


def _readable(secrets: SecretQuerySet) -> Iterator[tuple[Secret, str]]:
    """Go through the secrets with their values; log those that cannot be read."""
    for secret in secrets:
        try:
            value = secret.value.open()
        except SecretUnreadable as error:
            logger.warning("%s %r of user %s: %s", secret.kind, secret.name, secret.user_id, error)
        else:
            yield secret, value


def store_secret(
    user_id: int,
    kind: SecretKind,
    *,
    name: str,
    value: str,
    description: str | None = None,
    host: str | None = None,
    provider_user_id: str | None = None,
) -> Secret:
    """Store a secret, in place of the one of the same kind and name if there is one, and return its row.

    Without a description the stored one stays. `host` and `provider_user_id` belong to a provider's
    token, and go when it does. Raise InvalidSecret; then nothing has changed.
    """
    _require_name(kind, name)
    if kind is not SecretKind.PROVIDER_TOKEN and (host is not None or provider_user_id is not None):
        raise InvalidSecret("Only a provider's token has a host and a user there.")
    stored: dict[str, object] = {
        "value": seal(value),
        "host": _clean(host),
        "provider_user_id": _clean(provider_user_id),
    }
    if description is not None:
        stored["description"] = columns.clean(description)
    secret, _ = Secret.objects.update_or_create(user_id=user_id, kind=kind, name=name, defaults=stored)
    return secret


def _require_name(kind: SecretKind, name: str) -> None:
    match kind:
        case SecretKind.SETTING:
            is_known = name in list(SettingSecret)
        case SecretKind.PROVIDER_TOKEN:
            is_known = name in list(ProviderType)
        case SecretKind.CUSTOM:
            is_known = bool(name.strip()) and columns.clean(name) == name
        case _:
            assert_never(kind)
    if not is_known or len(name) > SECRET_NAME_MAX_LENGTH:
        raise InvalidSecret(f"A secret of the kind {kind.value} cannot have this name.")


def _clean(text: str | None) -> str | None:
    return None if text is None else columns.clean(text)
