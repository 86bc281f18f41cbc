"""The agent face: one conversation, as an agent server has it."""
