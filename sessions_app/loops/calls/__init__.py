"""Tool calls between their event and the event of their result."""
