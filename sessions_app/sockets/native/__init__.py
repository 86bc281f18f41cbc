"""The native sockets: one conversation, and the list."""
