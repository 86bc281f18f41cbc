"""The addresses of frequent probes, whose module imports no page and no other route."""

from __future__ import annotations

from django.urls import path

from convserver.web import probes

handler400 = "convserver.api.errors.bad_request"
handler404 = "convserver.api.errors.not_found"
handler500 = "convserver.api.errors.server_error"

urlpatterns = [
    path("alive", probes.AliveView.as_view(), name="alive"),
    path("health", probes.HealthView.as_view(), name="health"),
    path("ready", probes.ReadyView.as_view(), name="ready"),
]
