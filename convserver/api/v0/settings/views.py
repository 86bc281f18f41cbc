"""A user's settings: read completely, changed in part (spec V0 §1.9)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.new_settings import NewSettings
from convserver.api.openhands.settings import KnownSettings, known
from convserver.api.openhands.view import body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v0.settings.failures import Failure, Message, failing_with
from convserver.api.v0.view import V0ViewSet
from sessions_app.git_providers.base import ProviderType
from sessions_app.models import UserSettings
from sessions_app.settings import placeholder_keys, user_settings
from sessions_app.settings.user_settings import SettingSecret


class SettingsInfo(KnownSettings):
    """A user's settings; a key is never shown, only whether there is one."""

    llm_api_key: None = None
    search_api_key: None = None
    sandbox_api_key: None = None
    provider_tokens_set: dict[ProviderType, str | None]
    """The host of each provider that has a token; null is the public one."""
    llm_api_key_set: bool
    search_api_key_set: bool


class V0SettingsViewSet(V0ViewSet):
    """The settings of the user."""

    needs = OF_THE_USER

    @extend_schema(responses={200: SettingsInfo, 404: Failure, 500: Failure})
    def retrieve(self, request: Request) -> Response:
        """Return all settings; 404 if none was ever saved."""
        with failing_with("Something went wrong loading settings"):
            settings = user_settings.settings_of(self.user_id)
            # The web client then opens its dialogue of the first run (spec V0 §1.9).
            if settings is None:
                raise Refused(404, {"error": "Settings not found"})
            return Response(_shown(settings))

    @extend_schema(request=NewSettings, responses={200: Message, 400: Detail, 500: Failure})
    def change(self, request: Request) -> Response:
        """Change the settings given in the body."""
        body = body_of(request, NewSettings)
        with failing_with("Something went wrong storing settings"):
            user_settings.change_settings(self.user_id, body.values(), secrets=body.secrets())
        note = placeholder_keys.note_on(body.llm_api_key or "")
        return Response({"message": f"Settings stored. {note}" if note else "Settings stored"})

    @extend_schema(request=None, responses={410: Failure})
    def reset(self, request: Request) -> Response:
        """Report that settings can't be reset any more."""
        # Clients of earlier releases may still send this (spec V0 §1.9).
        raise Refused(410, {"error": "Reset settings functionality has been removed."})


def _shown(settings: UserSettings) -> dict[str, Any]:
    secrets = user_settings.setting_secrets(settings.pk)
    tokens = user_settings.provider_tokens(settings.pk)
    info = SettingsInfo(
        **known(settings, secrets, user_id=settings.pk),
        provider_tokens_set={provider: token.host for provider, token in tokens.items()},
        llm_api_key_set=SettingSecret.LLM_API_KEY in secrets,
        search_api_key_set=SettingSecret.SEARCH_API_KEY in secrets,
    )
    return info.model_dump(mode="json")
