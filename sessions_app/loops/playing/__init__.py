"""A turn while an agent plays it: what the agent is given, and what it stores."""
