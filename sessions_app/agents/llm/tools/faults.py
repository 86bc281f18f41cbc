"""The failure of a tool server, in words for the user and the model."""

from __future__ import annotations


class ToolFault(Exception):
    """A tool server cannot be used, or a call of it has no result; the text holds no key."""
