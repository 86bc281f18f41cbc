"""The page of one conversation, and what is done to conversations."""
