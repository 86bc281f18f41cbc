"""Tool calls between their event and that of their result: what may be run, and what was started."""
