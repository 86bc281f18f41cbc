"""Clients of sockets and of REST that use as little of the machine as they can."""
