"""Events as HTML without scripts."""

from convserver.rendering.page import render_page

__all__ = ["render_page"]
