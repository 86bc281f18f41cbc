"""What convserver promises, one file for each behaviour that a user could name."""
