"""Outgoing requests: the allowed addresses, and the proxy."""
