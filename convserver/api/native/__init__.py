"""The native door by REST, the counterpart of the native sockets."""
