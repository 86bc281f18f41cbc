"""What is done to many conversations at once, and taken back."""
