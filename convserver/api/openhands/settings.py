"""The visible part of a user's settings, on either wire: everything except the keys themselves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from convserver.api.openhands.tool_servers import McpConfig
from sessions_app.models import UserSettings
from sessions_app.settings.user_settings import SettingSecret

logger = logging.getLogger(__name__)


class SecretsStore(BaseModel):
    """Always empty: the information is in `provider_tokens_set`."""

    provider_tokens: dict[str, str]


class KnownSettings(BaseModel):
    """The settings that both wires show in the same form, in their order."""

    language: str | None
    agent: str | None
    max_iterations: int | None
    security_analyzer: str | None
    confirmation_mode: bool | None
    llm_model: str | None
    llm_api_key: str | None
    llm_base_url: str | None
    remote_runtime_resource_factor: int | None
    secrets_store: SecretsStore
    enable_default_condenser: bool
    enable_sound_notifications: bool
    enable_proactive_conversation_starters: bool
    enable_solvability_analysis: bool
    user_consents_to_analytics: bool | None
    sandbox_base_container_image: str | None
    sandbox_runtime_container_image: str | None
    mcp_config: McpConfig | None
    search_api_key: str | None
    sandbox_api_key: str | None
    max_budget_per_task: float | None
    condenser_max_size: int | None
    email: str | None
    email_verified: bool | None
    git_user_name: str | None
    git_user_email: str | None
    v1_enabled: bool | None


_KEYS = (SettingSecret.LLM_API_KEY, SettingSecret.SEARCH_API_KEY, SettingSecret.SANDBOX_API_KEY)


def known(
    settings: UserSettings,
    secrets: Mapping[SettingSecret, str],
    *,
    user_id: int,
    key_shown_as: str | None = None,
) -> dict[str, Any]:
    """Return the members of KnownSettings; `secrets` are in clear, and no key among them is shown.

    `key_shown_as` replaces a stored key.
    """
    own = {name: getattr(settings, name) for name in KnownSettings.model_fields if hasattr(settings, name)}
    return {
        **own,
        **{key.value: key_shown_as if key in secrets else None for key in _KEYS},
        "secrets_store": SecretsStore(provider_tokens={}),
        "mcp_config": _tool_servers(secrets.get(SettingSecret.MCP_CONFIG), user_id=user_id),
    }


def _tool_servers(config: str | None, *, user_id: int) -> McpConfig | None:
    """Return the stored tool servers; None, with a line in the log, if they are invalid."""
    if config is None:
        return None
    try:
        return McpConfig.model_validate_json(config)
    except ValidationError as error:
        # Not the error itself, which repeats the refused value.
        logger.warning(
            "The tool servers of user %s cannot be read: %s problems", user_id, error.error_count()
        )
        return None
