"""Conversations as other programs keep them in files: one format each, read and never written."""
