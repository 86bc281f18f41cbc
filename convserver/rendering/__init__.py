"""Events as HTML without scripts."""

from convserver.rendering.cards import CallOutcome, MessageCard
from convserver.rendering.page import FilesShown, PendingCall, render_page
from convserver.rendering.reading import read, whole_text

__all__ = [
    "CallOutcome",
    "FilesShown",
    "MessageCard",
    "PendingCall",
    "read",
    "render_page",
    "whole_text",
]
