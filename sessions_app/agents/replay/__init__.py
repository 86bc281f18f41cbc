"""The agent that plays a recorded conversation again."""
