"""The V0 door."""
