"""What a web client asks before anything else: the kind of server, and what to show of it."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.scopes import OPEN
from convserver.api.v1.app.view import AppViewSet
from sessions_app.git_providers.client import PROVIDERS

UPDATED_AT = "2026-01-01T00:00:00Z"
"""Clients compare it to tell whether `error_message` and `faulty_models` are news; here they never are."""


class WebClientFlags(BaseModel):
    """The parts of a web client to show."""

    enable_billing: bool = False
    hide_llm_settings: bool = False
    enable_jira: bool = False
    enable_jira_dc: bool = False
    enable_linear: bool = False
    hide_users_page: bool = True
    hide_billing_page: bool = True
    hide_integrations_page: bool = False
    hide_personal_workspaces: bool = False
    allow_user_llm_configuration: bool = True
    enable_acp: bool = False
    deployment_mode: Literal["self_hosted"] | None = None
    enable_onboarding: bool = False
    enable_automations: bool = False


class WebClientInfo(BaseModel):
    """The kind of server; `oss` has no logins, bills and third parties of its own."""

    app_mode: Literal["oss"] = "oss"
    # Without a key a web client reports nothing of what its user does.
    posthog_client_key: str | None = None
    feature_flags: WebClientFlags = WebClientFlags()
    providers_configured: list[str] = []
    maintenance_start_time: str | None = None
    auth_url: str | None = None
    recaptcha_site_key: str | None = None
    faulty_models: list[str] = []
    error_message: str | None = None
    updated_at: str = UPDATED_AT
    github_app_slug: str | None = None
    gitlab_enabled: bool = False
    provider_default_hosts: dict[str, str]
    slack_enabled: bool = False
    email_enabled: bool = False
    acp_providers: list[dict[str, Any]] = []
    jira_dc_oauth_host: str | None = None
    jira_dc_service_account_managed: bool = False
    jira_dc_service_account_email: str | None = None
    jira_dc_service_account_config_error: str | None = None


class WebClientViewSet(AppViewSet):
    """The configuration of web clients."""

    needs = OPEN
    authentication_classes = ()  # a client with an old key has to learn where to log in
    permission_classes = (AllowAny,)

    @extend_schema(responses={200: WebClientInfo})
    def retrieve(self, request: Request) -> Response:
        """Return the configuration, the same for every client."""
        hosts = {provider.value: found.public_host for provider, found in PROVIDERS.items()}
        return Response(WebClientInfo(provider_default_hosts=hosts).model_dump())
