"""The settings: one page of sections, each saved by itself."""
