"""The addresses where a built frontend has `/`: convserver's own pages are below `/ui/`."""

from __future__ import annotations

from django.urls import include, path, re_path

from convserver.urls import elsewhere, handler400, handler404, handler500
from convserver.web import frontend

__all__ = ["handler400", "handler404", "handler500", "urlpatterns"]

urlpatterns = [
    *elsewhere,
    path("ui/", include("convserver.web.urls")),
    re_path(r"^(?P<path>(?s:.*))\Z", frontend.show, name="frontend"),
]
