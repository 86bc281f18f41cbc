"""The addresses of the V1 app face, below /api/v1; none ends with a slash."""

from __future__ import annotations

from django.urls import path, re_path

from convserver.api.v1.app import (
    absent,
    conversations,
    events,
    pending_messages,
    sandboxes,
    start_tasks,
    users,
    web_client,
    webhook_reports,
)
from convserver.api.v1.app.settings import choices, git, profiles, secrets
from convserver.api.v1.app.settings import views as settings

_CONVERSATIONS = "app-conversations"
_ONE = r"^app-conversations/(?P<conversation_id>[^/]+)"
_LOG = r"^conversation/(?P<conversation_id>[^/]+)/events"
_SANDBOX = r"^sandboxes/(?P<sandbox_id>[^/]+)"
_PROFILE = r"^settings/profiles/(?P<name>[^/]+)"
_WEBHOOKS = r"^webhooks/(?P<sandbox_id>[^/]+)"
_REPORTED = r"events/(?P<conversation_id>[^/]+)"

urlpatterns = [
    path(
        f"{_CONVERSATIONS}/search",
        conversations.AppConversationViewSet.as_view({"get": "search"}),
        name="app-search",
    ),
    path(
        f"{_CONVERSATIONS}/count",
        conversations.AppConversationViewSet.as_view({"get": "count"}),
        name="app-count",
    ),
    path(
        _CONVERSATIONS,
        conversations.AppConversationViewSet.as_view({"get": "batch", "post": "create"}),
        name="app-conversations",
    ),
    path(
        f"{_CONVERSATIONS}/stream-start",
        start_tasks.StartTaskViewSet.as_view({"post": "stream"}),
        name="app-stream-start",
    ),
    path(
        f"{_CONVERSATIONS}/start-tasks/search",
        start_tasks.StartTaskViewSet.as_view({"get": "search"}),
        name="app-start-search",
    ),
    path(
        f"{_CONVERSATIONS}/start-tasks/count",
        start_tasks.StartTaskViewSet.as_view({"get": "count"}),
        name="app-start-count",
    ),
    path(
        f"{_CONVERSATIONS}/start-tasks",
        start_tasks.StartTaskViewSet.as_view({"get": "batch"}),
        name="app-start-tasks",
    ),
    re_path(
        rf"{_ONE}$",
        conversations.AppConversationViewSet.as_view({"patch": "partial_update", "delete": "destroy"}),
        name="app-conversation",
    ),
    re_path(
        rf"{_ONE}/send-message$",
        conversations.AppConversationViewSet.as_view({"post": "send_message"}),
        name="app-send-message",
    ),
    re_path(
        rf"{_ONE}/download$",
        conversations.AppConversationViewSet.as_view({"get": "download"}),
        name="app-download",
    ),
    re_path(
        r"^conversations/(?P<waiting_id>[^/]+)/pending-messages$",
        pending_messages.PendingMessageViewSet.as_view({"post": "create"}),
        name="app-pending-messages",
    ),
    path("events/search", events.AppEventViewSet.as_view({"get": "search"}), name="app-event-search"),
    path("events/count", events.AppEventViewSet.as_view({"get": "count"}), name="app-event-count"),
    path("events", events.AppEventViewSet.as_view({"get": "batch"}), name="app-events"),
    re_path(rf"{_LOG}/search$", events.LogViewSet.as_view({"get": "search"}), name="app-log-search"),
    re_path(rf"{_LOG}/count$", events.LogViewSet.as_view({"get": "count"}), name="app-log-count"),
    re_path(rf"{_LOG}$", events.LogViewSet.as_view({"get": "batch"}), name="app-log"),
    path("sandboxes/search", sandboxes.SandboxViewSet.as_view({"get": "search"}), name="app-sandbox-search"),
    path(
        "sandboxes",
        sandboxes.SandboxViewSet.as_view({"get": "batch", "post": "create"}),
        name="app-sandboxes",
    ),
    re_path(
        rf"{_SANDBOX}/pause$", sandboxes.SandboxViewSet.as_view({"post": "pause"}), name="app-sandbox-pause"
    ),
    re_path(
        rf"{_SANDBOX}/resume$",
        sandboxes.SandboxViewSet.as_view({"post": "resume"}),
        name="app-sandbox-resume",
    ),
    re_path(rf"{_SANDBOX}$", sandboxes.SandboxViewSet.as_view({"delete": "destroy"}), name="app-sandbox"),
    path(
        "sandbox-specs/search",
        sandboxes.SpecViewSet.as_view({"get": "search"}),
        name="app-sandbox-spec-search",
    ),
    path("sandbox-specs", sandboxes.SpecViewSet.as_view({"get": "batch"}), name="app-sandbox-specs"),
    re_path(
        rf"{_SANDBOX}/settings/secrets$",
        secrets.SandboxSecretViewSet.as_view({"get": "list"}),
        name="app-sandbox-secrets",
    ),
    re_path(
        rf"{_SANDBOX}/settings/secrets/(?P<name>[^/]+)$",
        secrets.SandboxSecretViewSet.as_view({"get": "retrieve"}),
        name="app-sandbox-secret",
    ),
    *(
        re_path(
            rf"{_ONE}/{address}$", absent.AppWorkspaceViewSet.as_view({"get": action}), name=f"app-{action}"
        )
        for address, action in (
            ("file", "file"),
            ("git/changes", "changes"),
            ("git/diff", "diff"),
            ("hooks", "hooks"),
            ("skills", "skills"),
        )
    ),
    re_path(
        rf"{_ONE}/switch_profile$",
        absent.SwitchViewSet.as_view({"post": "profile"}),
        name="app-switch-profile",
    ),
    re_path(
        rf"{_ONE}/switch_acp_model$",
        absent.SwitchViewSet.as_view({"post": "acp_model"}),
        name="app-switch-acp-model",
    ),
    path(
        "web-client/config",
        web_client.WebClientViewSet.as_view({"get": "retrieve"}),
        name="app-web-client-config",
    ),
    path(
        "settings",
        settings.AppSettingsViewSet.as_view({"get": "retrieve", "post": "change"}),
        name="app-settings",
    ),
    path(
        "settings/agent-schema",
        settings.AppSettingsViewSet.as_view({"get": "agent_form"}),
        name="app-agent-form",
    ),
    path(
        "settings/conversation-schema",
        settings.AppSettingsViewSet.as_view({"get": "conversation_form"}),
        name="app-conversation-form",
    ),
    path(
        "settings/profiles",
        profiles.AppProfileViewSet.as_view({"get": "list"}),
        name="app-profiles",
    ),
    re_path(
        rf"{_PROFILE}$",
        profiles.AppProfileViewSet.as_view({"get": "retrieve", "post": "create", "delete": "destroy"}),
        name="app-profile",
    ),
    re_path(
        rf"{_PROFILE}/activate$",
        profiles.AppProfileViewSet.as_view({"post": "activate"}),
        name="app-profile-activate",
    ),
    re_path(
        rf"{_PROFILE}/rename$",
        profiles.AppProfileViewSet.as_view({"post": "rename"}),
        name="app-profile-rename",
    ),
    path("secrets/search", secrets.AppSecretViewSet.as_view({"get": "search"}), name="app-secret-search"),
    path("secrets", secrets.AppSecretViewSet.as_view({"post": "create"}), name="app-secrets"),
    path(
        "secrets/git-providers",
        secrets.AppSecretViewSet.as_view({"post": "store_git_tokens", "delete": "remove_git_tokens"}),
        name="app-git-tokens",
    ),
    re_path(
        r"^secrets/(?P<secret_id>[^/]+)$",
        secrets.AppSecretViewSet.as_view({"put": "update", "delete": "destroy"}),
        name="app-secret",
    ),
    path("config/models/search", choices.ChoiceViewSet.as_view({"get": "models"}), name="app-models"),
    path(
        "config/providers/search", choices.ChoiceViewSet.as_view({"get": "providers"}), name="app-providers"
    ),
    path("skills/search", choices.ChoiceViewSet.as_view({"get": "skills"}), name="app-all-skills"),
    path(
        "skills/marketplace-skills",
        absent.RefusedViewSet.as_view({"post": "marketplaces"}),
        name="app-marketplaces",
    ),
    path("recaptcha/log", absent.RefusedViewSet.as_view({"post": "captcha"}), name="app-captcha"),
    path("users/git-info", git.AppGitViewSet.as_view({"get": "user"}), name="app-git-user"),
    *(
        path(f"git/{address}/search", git.AppGitViewSet.as_view({"get": action}), name=f"app-git-{address}")
        for address, action in (
            ("installations", "installations"),
            ("repositories", "repositories"),
            ("branches", "branches"),
            ("suggested-tasks", "suggested_tasks"),
        )
    ),
    path("users/me", users.UserViewSet.as_view({"get": "retrieve"}), name="app-me"),
    path("webhooks/secrets", webhook_reports.WebhookSecretView.as_view(), name="app-webhook-secrets"),
    path(
        "webhooks/conversations",
        webhook_reports.ConversationReportViewSet.as_view({"post": "create"}),
        name="app-webhook-conversations",
    ),
    re_path(
        rf"^webhooks/{_REPORTED}$",
        webhook_reports.EventReportViewSet.as_view({"post": "create"}),
        name="app-webhook-events",
    ),
    re_path(
        rf"{_WEBHOOKS}/conversations$",
        webhook_reports.SandboxConversationReportViewSet.as_view({"post": "create"}),
        name="app-webhook-sandbox-conversations",
    ),
    re_path(
        rf"{_WEBHOOKS}/{_REPORTED}$",
        webhook_reports.SandboxEventReportViewSet.as_view({"post": "create"}),
        name="app-webhook-sandbox-events",
    ),
]
