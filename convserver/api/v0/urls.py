"""The addresses of the V0 REST door; none ends with a slash."""

from __future__ import annotations

from django.urls import path, re_path

from convserver.api.v0.conversations import ConversationViewSet
from convserver.api.v0.events import EventsView, MessageView, TrajectoryView
from convserver.api.v0.learning import ExperimentView, RememberPromptView
from convserver.api.v0.microagents import MicroagentManagementView

_ONE = r"^conversations/(?P<conversation_id>[^/]+)"

urlpatterns = [
    path(
        "conversations",
        ConversationViewSet.as_view({"get": "list", "post": "create"}),
        name="v0-conversations",
    ),
    re_path(
        rf"{_ONE}$",
        ConversationViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="v0-conversation",
    ),
    re_path(rf"{_ONE}/start$", ConversationViewSet.as_view({"post": "start"}), name="v0-start"),
    re_path(rf"{_ONE}/stop$", ConversationViewSet.as_view({"post": "stop"}), name="v0-stop"),
    re_path(rf"{_ONE}/exp-config$", ExperimentView.as_view(), name="v0-exp-config"),
    re_path(rf"{_ONE}/remember-prompt$", RememberPromptView.as_view(), name="v0-remember-prompt"),
    re_path(rf"{_ONE}/events$", EventsView.as_view(), name="v0-events"),
    re_path(rf"{_ONE}/message$", MessageView.as_view(), name="v0-message"),
    re_path(rf"{_ONE}/trajectory$", TrajectoryView.as_view(), name="v0-trajectory"),
    path(
        "microagent-management/conversations",
        MicroagentManagementView.as_view(),
        name="v0-microagent-conversations",
    ),
]
