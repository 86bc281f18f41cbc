"""What a user keeps, and what forms suggest, on the app face."""
