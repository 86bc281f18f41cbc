"""What events look like: one page of them as HTML that does nothing but show itself."""

from convserver.rendering.page import render_events, render_page

__all__ = ["render_events", "render_page"]
