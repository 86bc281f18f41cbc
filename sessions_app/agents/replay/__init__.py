"""The agent that repeats a recorded conversation."""
