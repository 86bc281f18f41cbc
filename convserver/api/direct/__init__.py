"""Appends by REST, made on the event loop: they wait for no thread, and share the commits of the sockets.

A request that is like most, small and by a known client, is taken from here to the group commit and back.
Everything else is left to its view, which also words every refusal.
"""
