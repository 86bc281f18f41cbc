"""Followers of programs on the server's own computer, switched on by users; in local mode only."""
