"""Answers in a view's only form, for every `Accept`."""

from __future__ import annotations

from collections.abc import Iterable

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class OneRenderer(DefaultContentNegotiation):
    """Looks neither at `Accept` nor at a parameter called `format`."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the only one."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type
