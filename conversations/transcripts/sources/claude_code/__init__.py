"""The sessions of Claude Code: a file of JSON lines each, whose lines form a tree (docs/formats.md)."""

from conversations.transcripts.sources.claude_code.files import NAME, files, is_source, transcripts

__all__ = ["NAME", "files", "is_source", "transcripts"]
