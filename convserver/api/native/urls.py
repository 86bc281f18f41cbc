"""The addresses of the native REST door."""

from __future__ import annotations

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from convserver.api.native.conversations import ConversationViewSet
from convserver.api.native.events import EventsView
from convserver.api.native.tokens import TokenViewSet

router = SimpleRouter(trailing_slash=False)
router.register("conversations", ConversationViewSet, basename="native-conversation")
router.register("tokens", TokenViewSet, basename="native-token")

urlpatterns = [
    re_path(r"^conversations/(?P<conversation_id>[^/]+)/events$", EventsView.as_view(), name="native-events"),
    *router.urls,
]
