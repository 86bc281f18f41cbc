"""Several processes: servers that run no loops, and workers that do."""
