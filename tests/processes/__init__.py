"""Real processes, some of them killed."""
