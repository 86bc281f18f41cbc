"""Which address is which view."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from convserver.web import views

handler404 = "convserver.api.errors.not_found"
handler500 = "convserver.api.errors.server_error"

urlpatterns = [
    path("", views.home, name="home"),
    path("health", views.health, name="health"),
    path("ui/login", LoginView.as_view(template_name="web/login.html"), name="login"),
    path("ui/logout", LogoutView.as_view(), name="logout"),
    path("api/native/", include("convserver.api.native.urls")),
    path("admin/", admin.site.urls),
]
