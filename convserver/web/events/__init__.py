"""Pages about one event."""
