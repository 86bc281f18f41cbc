"""The app's registration."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Sockets, loops, agents, tokens."""

    name = "sessions_app"
    verbose_name = "sessions"

    def ready(self) -> None:
        """Note from now on what takes access away."""
        from sessions_app.identity import access_signals  # its models are there only now

        access_signals.follow()
