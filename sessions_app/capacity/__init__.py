"""Queues and shares of what all users use: threads, appends, parsing, memory."""
