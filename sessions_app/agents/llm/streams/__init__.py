"""Readers of models' answers: the text, the calls, and the end."""
