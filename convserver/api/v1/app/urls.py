"""The addresses of the V1 app face, below /api/v1; none ends with a slash."""

from __future__ import annotations

from django.urls import path

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
    conversations.AppConversationViewSet.route("app-search", f"{_CONVERSATIONS}/search", get="search"),
    conversations.AppConversationViewSet.route("app-count", f"{_CONVERSATIONS}/count", get="count"),
    conversations.AppConversationViewSet.route(
        "app-conversations", _CONVERSATIONS, get="batch", post="create"
    ),
    start_tasks.StartTaskViewSet.route("app-stream-start", f"{_CONVERSATIONS}/stream-start", post="stream"),
    start_tasks.StartTaskViewSet.route(
        "app-start-search", f"{_CONVERSATIONS}/start-tasks/search", get="search"
    ),
    start_tasks.StartTaskViewSet.route("app-start-count", f"{_CONVERSATIONS}/start-tasks/count", get="count"),
    start_tasks.StartTaskViewSet.route("app-start-tasks", f"{_CONVERSATIONS}/start-tasks", get="batch"),
    conversations.AppConversationViewSet.route(
        "app-conversation", rf"{_ONE}$", patch="partial_update", delete="destroy"
    ),
    conversations.AppConversationViewSet.route(
        "app-send-message", rf"{_ONE}/send-message$", post="send_message"
    ),
    conversations.AppConversationViewSet.route("app-download", rf"{_ONE}/download$", get="download"),
    pending_messages.PendingMessageViewSet.route(
        "app-pending-messages", r"^conversations/(?P<waiting_id>[^/]+)/pending-messages$", post="create"
    ),
    events.AppEventViewSet.route("app-event-search", "events/search", get="search"),
    events.AppEventViewSet.route("app-event-count", "events/count", get="count"),
    events.AppEventViewSet.route("app-events", "events", get="batch"),
    events.LogViewSet.route("app-log-search", rf"{_LOG}/search$", get="search"),
    events.LogViewSet.route("app-log-count", rf"{_LOG}/count$", get="count"),
    events.LogViewSet.route("app-log", rf"{_LOG}$", get="batch"),
    sandboxes.SandboxViewSet.route("app-sandbox-search", "sandboxes/search", get="search"),
    sandboxes.SandboxViewSet.route("app-sandboxes", "sandboxes", get="batch", post="create"),
    sandboxes.SandboxViewSet.route("app-sandbox-pause", rf"{_SANDBOX}/pause$", post="pause"),
    sandboxes.SandboxViewSet.route("app-sandbox-resume", rf"{_SANDBOX}/resume$", post="resume"),
    sandboxes.SandboxViewSet.route("app-sandbox", rf"{_SANDBOX}$", delete="destroy"),
    sandboxes.SpecViewSet.route("app-sandbox-spec-search", "sandbox-specs/search", get="search"),
    sandboxes.SpecViewSet.route("app-sandbox-specs", "sandbox-specs", get="batch"),
    secrets.SandboxSecretViewSet.route("app-sandbox-secrets", rf"{_SANDBOX}/settings/secrets$", get="list"),
    secrets.SandboxSecretViewSet.route(
        "app-sandbox-secret", rf"{_SANDBOX}/settings/secrets/(?P<name>[^/]+)$", get="retrieve"
    ),
    *(
        absent.AppWorkspaceViewSet.route(f"app-{action}", rf"{_ONE}/{address}$", get=action)
        for address, action in (
            ("file", "file"),
            ("git/changes", "changes"),
            ("git/diff", "diff"),
            ("hooks", "hooks"),
            ("skills", "skills"),
        )
    ),
    absent.SwitchViewSet.route("app-switch-profile", rf"{_ONE}/switch_profile$", post="profile"),
    absent.SwitchViewSet.route("app-switch-acp-model", rf"{_ONE}/switch_acp_model$", post="acp_model"),
    web_client.WebClientViewSet.route("app-web-client-config", "web-client/config", get="retrieve"),
    settings.AppSettingsViewSet.route("app-settings", "settings", get="retrieve", post="change"),
    settings.AppSettingsViewSet.route("app-agent-form", "settings/agent-schema", get="agent_form"),
    settings.AppSettingsViewSet.route(
        "app-conversation-form", "settings/conversation-schema", get="conversation_form"
    ),
    profiles.AppProfileViewSet.route("app-profiles", "settings/profiles", get="list"),
    profiles.AppProfileViewSet.route(
        "app-profile", rf"{_PROFILE}$", get="retrieve", post="create", delete="destroy"
    ),
    profiles.AppProfileViewSet.route("app-profile-activate", rf"{_PROFILE}/activate$", post="activate"),
    profiles.AppProfileViewSet.route("app-profile-rename", rf"{_PROFILE}/rename$", post="rename"),
    secrets.AppSecretViewSet.route("app-secret-search", "secrets/search", get="search"),
    secrets.AppSecretViewSet.route("app-secrets", "secrets", post="create"),
    secrets.AppSecretViewSet.route(
        "app-git-tokens", "secrets/git-providers", post="store_git_tokens", delete="remove_git_tokens"
    ),
    secrets.AppSecretViewSet.route(
        "app-secret", r"^secrets/(?P<secret_id>[^/]+)$", put="update", delete="destroy"
    ),
    choices.ChoiceViewSet.route("app-models", "config/models/search", get="models"),
    choices.ChoiceViewSet.route("app-providers", "config/providers/search", get="providers"),
    choices.ChoiceViewSet.route("app-all-skills", "skills/search", get="skills"),
    absent.RefusedViewSet.route("app-marketplaces", "skills/marketplace-skills", post="marketplaces"),
    absent.RefusedViewSet.route("app-captcha", "recaptcha/log", post="captcha"),
    git.AppGitViewSet.route("app-git-user", "users/git-info", get="user"),
    *(
        git.AppGitViewSet.route(f"app-git-{address}", f"git/{address}/search", get=action)
        for address, action in (
            ("installations", "installations"),
            ("repositories", "repositories"),
            ("branches", "branches"),
            ("suggested-tasks", "suggested_tasks"),
        )
    ),
    users.UserViewSet.route("app-me", "users/me", get="retrieve"),
    path("webhooks/secrets", webhook_reports.WebhookSecretView.as_view(), name="app-webhook-secrets"),
    webhook_reports.ConversationReportViewSet.route(
        "app-webhook-conversations", "webhooks/conversations", post="create"
    ),
    webhook_reports.EventReportViewSet.route("app-webhook-events", rf"^webhooks/{_REPORTED}$", post="create"),
    webhook_reports.SandboxConversationReportViewSet.route(
        "app-webhook-sandbox-conversations", rf"{_WEBHOOKS}/conversations$", post="create"
    ),
    webhook_reports.SandboxEventReportViewSet.route(
        "app-webhook-sandbox-events", rf"{_WEBHOOKS}/{_REPORTED}$", post="create"
    ),
]
