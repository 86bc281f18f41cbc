"""Which addresses this server asks, and by which proxy."""
