"""The project's own app: its pages, templates and static files."""

from __future__ import annotations

from django.apps import AppConfig


class ConvserverConfig(AppConfig):
    """Doors and pages."""

    name = "convserver"
