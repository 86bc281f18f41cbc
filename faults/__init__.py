"""Runs that break a whole installation on purpose, and check what is left of it."""
