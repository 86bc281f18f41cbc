"""What a person may set: one page of sections, each saved by itself."""
