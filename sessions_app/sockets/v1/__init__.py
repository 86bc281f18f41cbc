"""The sockets of the V1 wire."""
