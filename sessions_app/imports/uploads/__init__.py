"""Imports of files that users upload: in pieces, then in the background, with a report that is kept."""
