"""Actions on many conversations at once, and their undo."""
