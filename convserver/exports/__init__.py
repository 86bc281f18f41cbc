"""Conversations as files, sent while they are read."""
