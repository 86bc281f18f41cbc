"""The addresses of the native REST door."""

from __future__ import annotations

from django.urls import path, re_path
from rest_framework.routers import SimpleRouter

from convserver.api.native.agents import AgentsView
from convserver.api.native.attaching.uploads import FilesView
from convserver.api.native.batch import BatchView
from convserver.api.native.checkpoints import CheckpointsView, RestoreFilesView
from convserver.api.native.conversations import ConversationViewSet
from convserver.api.native.drafts import DraftView, NewDraftView
from convserver.api.native.events import EventsView
from convserver.api.native.export import AccountExportView, ExportView
from convserver.api.native.imports import (
    CancelView,
    ImportedView,
    ImportsView,
    ImportView,
    PiecesView,
    StartView,
)
from convserver.api.native.labels import LabelsView
from convserver.api.native.opinions.feedback import AnswerFeedbackView, FeedbackView
from convserver.api.native.receipts import ReceiptsView
from convserver.api.native.run_options import RunOptionsView
from convserver.api.native.search import SearchView
from convserver.api.native.stream import ListStreamView, StreamView
from convserver.api.native.tokens import TokenViewSet

router = SimpleRouter(trailing_slash=False)
router.register("conversations", ConversationViewSet, basename="native-conversation")
router.register("tokens", TokenViewSet, basename="native-token")

_ONE = "conversations/(?P<conversation_id>[^/]+)"
_IMPORT = "imports/(?P<import_id>[A-Za-z0-9]{1,64})"

urlpatterns = [
    re_path(rf"^{_ONE}/events$", EventsView.as_view(), name="native-events"),
    re_path(rf"^{_ONE}/draft$", DraftView.as_view(), name="native-conversation-draft"),
    re_path(rf"^{_ONE}/files$", FilesView.as_view(), name="native-conversation-files"),
    re_path(rf"^{_ONE}/options$", RunOptionsView.as_view(), name="native-conversation-options"),
    re_path(rf"^{_ONE}/checkpoints$", CheckpointsView.as_view(), name="native-conversation-checkpoints"),
    re_path(rf"^{_ONE}/restore-files$", RestoreFilesView.as_view(), name="native-conversation-restore-files"),
    re_path(rf"^{_ONE}/stream$", StreamView.as_view(), name="native-stream"),
    path("stream", ListStreamView.as_view(), name="native-list-stream"),
    path("agents", AgentsView.as_view(), name="native-agents"),
    re_path(rf"^{_ONE}/receipts$", ReceiptsView.as_view(), name="native-conversation-receipts"),
    re_path(rf"^{_ONE}/feedback$", FeedbackView.as_view(), name="native-conversation-feedback"),
    re_path(
        rf"^{_ONE}/feedback/(?P<seq>[0-9]{{1,18}})$",
        AnswerFeedbackView.as_view(),
        name="native-answer-feedback",
    ),
    path("batch", BatchView.as_view(), name="native-batch"),
    path("labels", LabelsView.as_view(), name="native-labels"),
    path("imports", ImportsView.as_view(), name="native-imports"),
    re_path(rf"^{_IMPORT}$", ImportView.as_view(), name="native-import"),
    re_path(rf"^{_IMPORT}/pieces$", PiecesView.as_view(), name="native-import-pieces"),
    re_path(rf"^{_IMPORT}/start$", StartView.as_view(), name="native-import-start"),
    re_path(rf"^{_IMPORT}/cancel$", CancelView.as_view(), name="native-import-cancel"),
    re_path(rf"^{_IMPORT}/conversations$", ImportedView.as_view(), name="native-import-conversations"),
    path("export", AccountExportView.as_view(), name="native-account-export"),
    path("draft", NewDraftView.as_view(), name="native-draft"),
    re_path(rf"^{_ONE}/export$", ExportView.as_view(), name="native-export"),
    re_path(r"^search$", SearchView.as_view(), name="native-search"),
    *router.urls,
]
