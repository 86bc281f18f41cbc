"""Events as HTML without scripts."""

from convserver.rendering.page import render_events, render_page

__all__ = ["render_events", "render_page"]
