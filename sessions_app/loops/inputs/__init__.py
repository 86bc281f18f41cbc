"""The user's messages to an agent: what becomes of one that arrives while it works, and when it was seen."""
