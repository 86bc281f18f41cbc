"""Appending to the log: the statements, the locks, and the outcome of a commit."""
