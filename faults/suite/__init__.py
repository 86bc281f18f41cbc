"""The fault suite: real servers are broken while clients use them, and every answer is checked."""
