"""What clients of each wire send, and what they are answered."""
