"""The store and the loops, on both engines."""
