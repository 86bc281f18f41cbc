"""The address of the metrics alone, for a process without pages."""

from __future__ import annotations

from django.urls import path

from convserver.web.metrics import MetricsView

handler400 = "convserver.api.errors.bad_request"
handler404 = "convserver.api.errors.not_found"
handler500 = "convserver.api.errors.server_error"

urlpatterns = [path("metrics", MetricsView.as_view(), name="metrics")]
