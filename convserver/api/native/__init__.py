"""The native door by REST: the twin of the native sockets."""
