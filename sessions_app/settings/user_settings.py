"""A user's settings and secrets: what doors and agents ask of them, and how a secret is stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, assert_never
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Sum
from django.db.models.functions import Length
from django.utils import timezone

from conversations.dialects import columns
from conversations.exceptions import ConversationError
from conversations.server_log import log_on_commit
from sessions_app.encryption import InvalidSecret, SecretUnreadable, seal
from sessions_app.git_providers.base import ProviderToken, ProviderType
from sessions_app.models import SECRET_NAME_MAX_LENGTH, Secret, SecretKind, SecretQuerySet, UserSettings
from sessions_app.settings.tool_server_secrets import secret_values

logger = logging.getLogger(__name__)

# A user's own, and as many of the tool servers: every append searches its events for all of them.
SECRETS_MAX = 200

# Models with these beginnings are opened by something else than a key (spec V0 §1.1, rule 6).
MODELS_WITHOUT_A_KEY = ("bedrock/", "lemonade/")


class SettingSecret(StrEnum):
    """The settings that are stored encrypted (spec V0 §1.9).

    Tool servers are among them: their URLs, arguments and environments may contain keys.
    """

    LLM_API_KEY = "llm_api_key"
    SEARCH_API_KEY = "search_api_key"
    SANDBOX_API_KEY = "sandbox_api_key"
    MCP_CONFIG = "mcp_config"
    NAMED_TOOL_SERVERS = "named_tool_servers"
    """The tool servers as V1 clients store them, by name: what MCP_CONFIG has no members for."""


TOOL_SERVERS = (SettingSecret.MCP_CONFIG, SettingSecret.NAMED_TOOL_SERVERS)


class SettingsNotFound(ConversationError):
    """The user has set nothing yet."""

    code = "settings_not_found"


class ModelKeyMissing(ConversationError):
    """The user's settings hold no usable key for the model."""

    code = "model_key_missing"


class ModelKeyWanted(ConversationError):
    """The stored key of the model was entered for another server."""

    code = "model_key_wanted"


class SecretNotFound(ConversationError):
    """The user has no secret of this name."""

    code = "secret_not_found"


class SecretExists(ConversationError):
    """The user has another secret of this name."""

    code = "secret_exists"


class TooManySecrets(ConversationError):
    """The user or the conversation would have more or longer secrets than the limits allow."""

    code = "too_many_secrets"


class NamedSecret(NamedTuple):
    """The visible part of a custom secret."""

    name: str
    description: str


def settings_of(user_id: int) -> UserSettings | None:
    """Return what the user has set; None before the first time."""
    return UserSettings.objects.filter(pk=user_id).first()


@transaction.atomic
def change_settings(
    user_id: int, values: Mapping[str, object], *, secrets: Mapping[SettingSecret, str]
) -> None:
    """Set these values and secrets and leave all others as they are; a blank secret is removed.

    Raise InvalidSecret or ModelKeyWanted; then nothing has changed.
    """
    # Anyone who changes the address without knowing the key would get the key sent there.
    if "llm_base_url" in values and SettingSecret.LLM_API_KEY not in secrets:
        _require_same_host(user_id, values["llm_base_url"])
    UserSettings.objects.update_or_create(user_id=user_id, defaults=values)
    if values:
        log_on_commit("Settings changed", user=user_id, settings=",".join(sorted(values)))
    for name, value in secrets.items():
        set_secret(user_id, name, value)


def _require_same_host(user_id: int, base_url: object) -> None:
    """Raise ModelKeyWanted if the stored key of the model would be sent to another host from now on."""
    stored = settings_of(user_id)
    before, now = (host_of(url) for url in ((stored and stored.llm_base_url) or "", base_url or ""))
    if before == now:
        return
    if Secret.objects.of(user_id).named(SecretKind.SETTING, SettingSecret.LLM_API_KEY).exists():
        raise ModelKeyWanted(
            "The base URL names another server. Enter the API key for it, or remove the key."
        )


def host_of(url: object) -> tuple[str, str]:
    """Return scheme, host and port: what a key is sent to."""
    try:
        parts = urlsplit(str(url).strip())
    except ValueError:
        return "", str(url)
    # The scheme counts: over plain HTTP the key would be sent in clear.
    return parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower()


def set_secret(user_id: int, name: SettingSecret, value: str) -> None:
    """Store one of the secret settings, or remove it if the value is blank. Raise InvalidSecret."""
    if value.strip():
        store_secret(user_id, SecretKind.SETTING, name=name, value=value)
    else:
        removed, _ = Secret.objects.of(user_id).named(SecretKind.SETTING, name).delete()
        if removed:
            _log_secret("Secret removed", user_id, SecretKind.SETTING, name)


@transaction.atomic
def change_tool_servers(user_id: int, change: Callable[[str | None], str]) -> None:
    """Store what `change` makes of the tool servers that are stored (JSON; None for none); blank is none.

    Raise what it raises, SecretUnreadable, InvalidSecret or TooManySecrets; then nothing has changed.
    """
    # There must be a row to lock: what one client adds is made of what another has stored.
    UserSettings.objects.get_or_create(user_id=user_id)
    UserSettings.objects.select_for_update().get(pk=user_id)
    stored = secret_value(user_id, SecretKind.SETTING, name=SettingSecret.MCP_CONFIG)
    set_secret(user_id, SettingSecret.MCP_CONFIG, change(stored))


def setting_secrets(user_id: int) -> dict[SettingSecret, str]:
    """Return the secret settings in clear; what cannot be read is left out and logged."""
    return {
        SettingSecret(secret.name): value
        for secret, value in _readable(Secret.objects.of(user_id).of_kinds(SecretKind.SETTING))
        if secret.name in list(SettingSecret)
    }


def require_model_key(user_id: int) -> None:
    """Make sure that the user's settings can open their model (spec V0 §1.1, rule 6).

    Raise SettingsNotFound; ModelKeyMissing also for a stored key that cannot be opened any more.
    """
    settings = settings_of(user_id)
    if settings is None:
        raise SettingsNotFound("No settings yet. Choose a model first.")
    if (settings.llm_model or "").startswith(MODELS_WITHOUT_A_KEY):
        return
    keys = Secret.objects.of(user_id).named(SecretKind.SETTING, SettingSecret.LLM_API_KEY)
    if not any(value.strip() for _, value in _readable(keys)):
        raise ModelKeyMissing("The model needs an API key. Add one in Settings.")


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


@transaction.atomic
def change_provider_tokens(
    user_id: int,
    tokens: Mapping[ProviderType, ProviderToken],
    *,
    mcp_config: str | None,
) -> None:
    """Store these tokens, and the tool servers if there are any.

    Other providers keep what they have. Raise InvalidSecret; then nothing has changed.
    """
    for provider, token in tokens.items():
        store_secret(
            user_id,
            SecretKind.PROVIDER_TOKEN,
            name=provider,
            value=token.token,
            host=token.host,
            provider_user_id=token.user_id,
        )
    if mcp_config is not None:
        set_secret(user_id, SettingSecret.MCP_CONFIG, mcp_config)


def remove_provider_tokens(user_id: int) -> None:
    """Forget every token of the user's git providers."""
    removed, _ = Secret.objects.of(user_id).of_kinds(SecretKind.PROVIDER_TOKEN).delete()
    if removed:
        _log_secret("Secret removed", user_id, SecretKind.PROVIDER_TOKEN)


def custom_secrets(user_id: int) -> list[NamedSecret]:
    """Return the names and descriptions of the user's own secrets, by name; no value is opened."""
    rows = Secret.objects.of(user_id).of_kinds(SecretKind.CUSTOM)
    return [NamedSecret(*row) for row in rows.values_list("name", "description")]


@transaction.atomic
def create_custom_secret(user_id: int, name: str, value: str, *, description: str) -> None:
    """Store a new secret of the user's own.

    Raise InvalidSecret, SecretExists if the name is taken, or TooManySecrets; then nothing has changed.
    """
    _require_name(SecretKind.CUSTOM, name)
    values = {"value": seal(value), "description": columns.clean(description)}
    _, is_new = Secret.objects.get_or_create(
        user_id=user_id, kind=SecretKind.CUSTOM, name=name, defaults=values
    )
    if not is_new:
        raise SecretExists("A secret with this name already exists.")
    if Secret.objects.of(user_id).of_kinds(SecretKind.CUSTOM).count() > SECRETS_MAX:
        raise TooManySecrets(f"You can have at most {SECRETS_MAX} secrets. Delete one first.")
    _require_room(user_id)
    _log_secret("Secret stored", user_id, SecretKind.CUSTOM, name)


def rename_custom_secret(user_id: int, name: str, *, new_name: str, description: str | None) -> None:
    """Give a secret of the user's own another name; without a description the stored one stays.

    Raise InvalidSecret, SecretNotFound, or SecretExists if another one has the new name.
    """
    _require_name(SecretKind.CUSTOM, new_name)
    changes = {"name": new_name}
    if description is not None:
        changes["description"] = columns.clean(description)
    try:
        with transaction.atomic():  # on PostgreSQL, a taken name would end the caller's transaction
            changed = _custom(user_id, name).update(**changes, updated_at=timezone.now())
    except IntegrityError as error:
        raise SecretExists("A secret with this name already exists.") from error
    if not changed:
        raise SecretNotFound("Secret not found.")
    _log_secret("Secret renamed", user_id, SecretKind.CUSTOM, new_name)


@transaction.atomic
def replace_custom_secret(user_id: int, name: str, value: str) -> None:
    """Give a secret of the user's own another value.

    Raise InvalidSecret, SecretNotFound or TooManySecrets; then nothing has changed.
    """
    if not _custom(user_id, name).update(value=seal(value), updated_at=timezone.now()):
        raise SecretNotFound("Secret not found.")
    _require_room(user_id)
    _log_secret("Secret stored", user_id, SecretKind.CUSTOM, name)


def remove_custom_secret(user_id: int, name: str) -> None:
    """Forget a secret of the user's own. Raise SecretNotFound."""
    removed, _ = _custom(user_id, name).delete()
    if not removed:
        raise SecretNotFound("Secret not found.")
    _log_secret("Secret removed", user_id, SecretKind.CUSTOM, name)


def _log_secret(act: str, user_id: int, kind: SecretKind, name: str | None = None) -> None:
    log_on_commit(act, user=user_id, kind=kind, name=name)


def _custom(user_id: int, name: str) -> SecretQuerySet:
    """Return the one of this name; none for a name that no database could look for."""
    rows = Secret.objects.of(user_id)
    return rows.named(SecretKind.CUSTOM, name) if columns.clean(name) == name else rows.none()


def _readable(secrets: SecretQuerySet) -> Iterator[tuple[Secret, str]]:
    """Yield the secrets with their values; log those that cannot be read."""
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
    token, and go when it does. Raise InvalidSecret or TooManySecrets; then nothing has changed.
    """
    _require_name(kind, name)
    is_of_tools = kind is SecretKind.SETTING and name in TOOL_SERVERS
    if is_of_tools and len(set(secret_values(value))) > SECRETS_MAX:
        raise TooManySecrets(f"The tool servers may have {SECRETS_MAX} keys and long values in environments.")
    if kind is not SecretKind.PROVIDER_TOKEN and (host is not None or provider_user_id is not None):
        raise InvalidSecret("Only a provider's token has a host and a user there.")
    stored: dict[str, object] = {
        "value": seal(value),
        "host": _clean(host),
        "provider_user_id": _clean(provider_user_id),
    }
    if description is not None:
        stored["description"] = columns.clean(description)
    with transaction.atomic():
        secret, _ = Secret.objects.update_or_create(user_id=user_id, kind=kind, name=name, defaults=stored)
        _require_room(user_id)
        _log_secret("Secret stored", user_id, kind, name)
    return secret


def _require_room(user_id: int) -> None:
    """Raise TooManySecrets where the stored ones are too long together; two at once may go beyond."""
    # Every append to the user's conversations reads them. Encryption makes four bytes of three.
    most = settings.CONFIGURATION.secrets_max_kb * 4000 // 3
    sizes = Secret.objects.of(user_id).order_by().aggregate(sealed=Sum(Length("value")))
    if (sizes["sealed"] or 0) > most:
        raise TooManySecrets(
            f"All secrets, keys and tokens of a user may take {most:,} characters once "
            "encrypted: delete or shorten one first."
        )


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
