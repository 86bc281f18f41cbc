"""The V1 door."""
