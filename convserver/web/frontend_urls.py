"""Which address is which view where a built frontend has `/`: convserver's own pages are under `/ui/`."""

from __future__ import annotations

from django.urls import path, re_path

from convserver.urls import elsewhere, handler400, handler404, handler500
from convserver.web import frontend, views

__all__ = ["handler400", "handler404", "handler500", "urlpatterns"]

urlpatterns = [
    path("ui/", views.home, name="home"),
    *elsewhere,
    re_path(r"^(?P<path>(?s:.*))\Z", frontend.show, name="frontend"),
]
