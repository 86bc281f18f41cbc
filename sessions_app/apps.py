"""The app's registration."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Sockets, loops, agents, tokens."""

    name = "sessions_app"
    verbose_name = "sessions"
