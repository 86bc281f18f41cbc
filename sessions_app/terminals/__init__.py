"""Terminals of conversations: each is one bash in a sandbox, whose state persists between commands."""
