"""The admin's pages of each noun."""
