"""The sessions of OpenAI Codex: a file of JSON lines each, in two layouts (docs/formats.md)."""

from conversations.transcripts.sources.codex.files import NAME, files, is_source, transcripts

__all__ = ["NAME", "files", "is_source", "transcripts"]
