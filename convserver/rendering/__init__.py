"""Events as HTML without scripts."""

from convserver.rendering.cards import CallOutcome, MessageCard
from convserver.rendering.page import PendingCall, render_page
from convserver.rendering.reading import read, whole_text

__all__ = ["CallOutcome", "MessageCard", "PendingCall", "read", "render_page", "whole_text"]
