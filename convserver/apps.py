"""The project's own app: its pages, templates and static files."""

from __future__ import annotations

from django.apps import AppConfig

from convserver.passwords import sign_ins


class ConvserverConfig(AppConfig):
    """Doors and pages."""

    name = "convserver"

    def ready(self) -> None:
        sign_ins.follow()
