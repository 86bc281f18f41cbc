"""Views by address."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from convserver import admin
from convserver.api.errors import upgrade_required
from convserver.api.schema import DocsView, SchemaView
from convserver.api.shared_origin import behind_v0
from convserver.api.v1.app import device_login, keys
from convserver.web import login, metrics, probe_urls, probes
from convserver.web.installed import views as installed
from convserver.web.probe_urls import handler400, handler404, handler500

__all__ = ["elsewhere", "handler400", "handler404", "handler500", "urlpatterns"]

# All addresses except people's pages, which move when a frontend is served.
elsewhere = [
    *probe_urls.urlpatterns,
    path("server_info", probes.ServerInfoView.as_view(), name="server-info"),
    path("metrics", metrics.MetricsView.as_view(), name="metrics"),
    path("ui/login", login.PasswordView.as_view(), name="login"),
    path("ui/key", login.KeyView.as_view(), name="key"),
    path("ui/manifest.webmanifest", installed.manifest, name="manifest"),
    path("ui/service-worker.js", installed.worker, name="service-worker"),
    path("ui/offline", installed.offline, name="offline"),
    path("ui/logout", LogoutView.as_view(), name="logout"),
    path("oauth/device/authorize", device_login.AuthorizeView.as_view(), name="device-authorize"),
    path("oauth/device/token", device_login.TokenView.as_view(), name="device-token"),
    path("api/keys/llm/byor", keys.KeyViewSet.as_view({"get": "model"}), name="app-model-key"),
    path("api/keys/current", keys.KeyViewSet.as_view({"get": "current"}), name="app-current-key"),
    path("api/v1/", include("convserver.api.v1.app.urls")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", DocsView.as_view(), name="docs"),
    path("api/native/", include("convserver.api.native.urls")),
    path("agent/", include("convserver.api.v1.agent.urls")),
    # Before V0, whose addresses some of V1 are: it looks at what says that V1 is meant.
    path("api/", include("convserver.api.shared_origin")),
    path("api/", include("convserver.api.v0.urls")),
    path("api/", include(behind_v0)),
    path("admin/", admin.urls),
    re_path(r"^ws/conversations(?:/[^/]+)?$", upgrade_required, name="native-socket"),
]

urlpatterns = [
    *elsewhere,
    # OpenHands' command line prints this address of what it has created.
    path(
        "conversations/<str:conversation_id>",
        RedirectView.as_view(pattern_name="conversation"),
        name="openhands-conversation",
    ),
    path("", include("convserver.web.urls")),
]
