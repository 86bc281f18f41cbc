"""The authenticated user, with their settings (spec V1 §1.5)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.settings import KnownSettings, known
from convserver.api.scopes import WRITES
from convserver.api.v1.app.shapes import shown_user
from convserver.api.v1.app.view import AppViewSet
from sessions_app.models import UserSettings
from sessions_app.settings import user_settings
from sessions_app.settings.setup_keys import MASK


class UserInfo(KnownSettings):
    """A user; stored keys are shown as asterisks."""

    id: str | None


class UserViewSet(AppViewSet):
    """The authenticated user."""

    needs = WRITES

    @extend_schema(responses={200: UserInfo})
    def retrieve(self, request: Request) -> Response:
        """Return the user; unset settings have their defaults."""
        settings = user_settings.settings_of(self.user_id) or UserSettings()
        secrets = user_settings.setting_secrets(self.user_id)
        info = UserInfo(
            id=shown_user(self.user_id), **known(settings, secrets, user_id=self.user_id, key_shown_as=MASK)
        )
        return Response(info.model_dump(mode="json"))
