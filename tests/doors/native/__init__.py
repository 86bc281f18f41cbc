"""The native door."""
