"""The admin."""
