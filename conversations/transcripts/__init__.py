"""Conversations in file formats: those of other programs, which are only read, JSON lines, and Markdown."""
