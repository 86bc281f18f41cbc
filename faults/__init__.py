"""Runs that break a whole installation on purpose, and check what is left of it."""

import convserver as convserver  # chooses the library of SQLite
