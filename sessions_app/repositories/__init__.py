"""Repositories of conversations: cloned into workspaces, and pushed from there."""
