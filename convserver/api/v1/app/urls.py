"""The addresses of the V1 app face, below /api/v1; none ends with a slash."""

from __future__ import annotations

from django.urls import path, re_path

from convserver.api.v1.app import (
    conversations,
    events,
    pending_messages,
    sandboxes,
    start_tasks,
    users,
    webhook_receivers,
)

_CONVERSATIONS = "app-conversations"
_ONE = r"^app-conversations/(?P<conversation_id>[^/]+)"
_LOG = r"^conversation/(?P<conversation_id>[^/]+)/events"
_SANDBOX = r"^sandboxes/(?P<sandbox_id>[^/]+)"
_WEBHOOKS = r"^webhooks/(?P<sandbox_id>[^/]+)"
_REPORTED = r"events/(?P<conversation_id>[^/]+)"

urlpatterns = [
    path(f"{_CONVERSATIONS}/search", conversations.SearchView.as_view(), name="app-search"),
    path(f"{_CONVERSATIONS}/count", conversations.CountView.as_view(), name="app-count"),
    path(_CONVERSATIONS, conversations.ConversationsView.as_view(), name="app-conversations"),
    path(f"{_CONVERSATIONS}/stream-start", start_tasks.StreamedStartView.as_view(), name="app-stream-start"),
    path(
        f"{_CONVERSATIONS}/start-tasks/search", start_tasks.StartSearchView.as_view(), name="app-start-search"
    ),
    path(f"{_CONVERSATIONS}/start-tasks/count", start_tasks.StartCountView.as_view(), name="app-start-count"),
    path(f"{_CONVERSATIONS}/start-tasks", start_tasks.StartBatchView.as_view(), name="app-start-tasks"),
    re_path(rf"{_ONE}$", conversations.OneView.as_view(), name="app-conversation"),
    re_path(rf"{_ONE}/send-message$", conversations.MessageView.as_view(), name="app-send-message"),
    re_path(rf"{_ONE}/download$", conversations.DownloadView.as_view(), name="app-download"),
    re_path(
        r"^conversations/(?P<waiting_id>[^/]+)/pending-messages$",
        pending_messages.PendingMessagesView.as_view(),
        name="app-pending-messages",
    ),
    path("events/search", events.EventSearchView.as_view(), name="app-event-search"),
    path("events/count", events.EventCountView.as_view(), name="app-event-count"),
    path("events", events.EventBatchView.as_view(), name="app-events"),
    re_path(rf"{_LOG}/search$", events.LogSearchView.as_view(), name="app-log-search"),
    re_path(rf"{_LOG}/count$", events.LogCountView.as_view(), name="app-log-count"),
    re_path(rf"{_LOG}$", events.LogBatchView.as_view(), name="app-log"),
    path("sandboxes/search", sandboxes.SandboxSearchView.as_view(), name="app-sandbox-search"),
    path("sandboxes", sandboxes.SandboxesView.as_view(), name="app-sandboxes"),
    re_path(rf"{_SANDBOX}/pause$", sandboxes.PauseView.as_view(), name="app-sandbox-pause"),
    re_path(rf"{_SANDBOX}/resume$", sandboxes.ResumeView.as_view(), name="app-sandbox-resume"),
    re_path(rf"{_SANDBOX}$", sandboxes.SandboxView.as_view(), name="app-sandbox"),
    path("sandbox-specs/search", sandboxes.SpecSearchView.as_view(), name="app-sandbox-spec-search"),
    path("sandbox-specs", sandboxes.SpecsView.as_view(), name="app-sandbox-specs"),
    path("users/me", users.MeView.as_view(), name="app-me"),
    path("webhooks/secrets", webhook_receivers.SecretReceiverView.as_view(), name="app-webhook-secrets"),
    path(
        "webhooks/conversations",
        webhook_receivers.ConversationReceiverView.as_view(),
        name="app-webhook-conversations",
    ),
    re_path(
        rf"^webhooks/{_REPORTED}$", webhook_receivers.EventReceiverView.as_view(), name="app-webhook-events"
    ),
    re_path(
        rf"{_WEBHOOKS}/conversations$",
        webhook_receivers.SandboxConversationReceiverView.as_view(),
        name="app-webhook-sandbox-conversations",
    ),
    re_path(
        rf"{_WEBHOOKS}/{_REPORTED}$",
        webhook_receivers.SandboxEventReceiverView.as_view(),
        name="app-webhook-sandbox-events",
    ),
]
