"""The app's registration."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings


class SessionsConfig(AppConfig):
    """Sockets, loops, agents, tokens."""

    name = "sessions_app"
    verbose_name = "sessions"

    def ready(self) -> None:
        from sessions_app.identity import access_signals  # its models are loaded only now

        access_signals.follow()
        if settings.CONFIGURATION.is_clustered:
            from sessions_app.loops.cluster import wakeups

            wakeups.follow()
