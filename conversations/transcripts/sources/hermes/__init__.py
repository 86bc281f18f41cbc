"""The sessions of hermes-webui: JSON documents with backups and journals beside them (docs/formats.md)."""

from conversations.transcripts.sources.hermes.sessions import NAME, files, is_source, transcripts

__all__ = ["NAME", "files", "is_source", "transcripts"]
