"""Files that clients attach to messages."""
