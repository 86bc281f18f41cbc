"""Passwords: hashed in a line of their own, guessed a few times, and logged."""
