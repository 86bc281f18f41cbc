"""The V1 wire as the doors use it: what its events say, and what agents write."""

from __future__ import annotations

from conversations.dialects.v1_author import AUTHOR
from conversations.dialects.v1_reading import called_tool, is_interrupted, read

__all__ = ["AUTHOR", "called_tool", "is_interrupted", "read"]
