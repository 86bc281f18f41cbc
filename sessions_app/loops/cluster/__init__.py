"""Several processes: servers that run no loops, and workers, or the first server, that do."""
