"""Judges what clients were told, in one pass over a history, against what the store holds at the end."""
