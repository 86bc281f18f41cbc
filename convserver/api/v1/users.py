"""Who is asking, with all that they have set (spec V1 §1.5)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.v0.mcp import McpConfig
from convserver.api.v0.settings import SecretsStore, shown_tool_servers
from convserver.api.v1.app_shapes import shown_user
from convserver.api.v1.app_view import AppView
from sessions_app import user_settings
from sessions_app.agent_setups import MASK
from sessions_app.models import UserSettings
from sessions_app.user_settings import SettingSecret


class UserInfo(BaseModel):
    """A user; a key that is set is shown as asterisks."""

    id: str | None
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


class MeView(AppView):
    """Whoever asks."""

    @extend_schema(responses={200: UserInfo})
    def get(self, request: Request) -> Response:
        """Return the user; what was never set has its default."""
        user_id = access.pk_of(request.user)
        settings = user_settings.settings_of(user_id) or UserSettings()
        secrets = user_settings.setting_secrets(user_id)
        own = {name: getattr(settings, name) for name in UserInfo.model_fields if hasattr(settings, name)}
        info = UserInfo(
            **own
            | {key.value: MASK if key in secrets else None for key in _KEYS}
            | {
                "id": shown_user(user_id),
                "secrets_store": SecretsStore(provider_tokens={}),
                "mcp_config": shown_tool_servers(secrets.get(SettingSecret.MCP_CONFIG), user_id=user_id),
            }
        )
        return Response(info.model_dump(mode="json"))
