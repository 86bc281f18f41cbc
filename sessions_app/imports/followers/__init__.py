"""Programs on the server's own computer that are followed while somebody wants it; in local mode only."""
