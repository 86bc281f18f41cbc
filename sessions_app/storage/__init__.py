"""Files that users give, and how much of each thing they have stored."""
