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
    webhook_reports,
)

_CONVERSATIONS = "app-conversations"
_ONE = r"^app-conversations/(?P<conversation_id>[^/]+)"
_LOG = r"^conversation/(?P<conversation_id>[^/]+)/events"
_SANDBOX = r"^sandboxes/(?P<sandbox_id>[^/]+)"
_WEBHOOKS = r"^webhooks/(?P<sandbox_id>[^/]+)"
_REPORTED = r"events/(?P<conversation_id>[^/]+)"

urlpatterns = [
    path(
        f"{_CONVERSATIONS}/search",
        conversations.ConversationViewSet.as_view({"get": "search"}),
        name="app-search",
    ),
    path(
        f"{_CONVERSATIONS}/count",
        conversations.ConversationViewSet.as_view({"get": "count"}),
        name="app-count",
    ),
    path(
        _CONVERSATIONS,
        conversations.ConversationViewSet.as_view({"get": "batch", "post": "create"}),
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
        conversations.ConversationViewSet.as_view({"patch": "partial_update", "delete": "destroy"}),
        name="app-conversation",
    ),
    re_path(
        rf"{_ONE}/send-message$",
        conversations.ConversationViewSet.as_view({"post": "send_message"}),
        name="app-send-message",
    ),
    re_path(
        rf"{_ONE}/download$",
        conversations.ConversationViewSet.as_view({"get": "download"}),
        name="app-download",
    ),
    re_path(
        r"^conversations/(?P<waiting_id>[^/]+)/pending-messages$",
        pending_messages.PendingMessageViewSet.as_view({"post": "create"}),
        name="app-pending-messages",
    ),
    path("events/search", events.EventViewSet.as_view({"get": "search"}), name="app-event-search"),
    path("events/count", events.EventViewSet.as_view({"get": "count"}), name="app-event-count"),
    path("events", events.EventViewSet.as_view({"get": "batch"}), name="app-events"),
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
