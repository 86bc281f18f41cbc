"""Requests and sockets before any door: protocols, bounds, threads, files, caches, the log."""
