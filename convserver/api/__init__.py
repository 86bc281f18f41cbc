"""The HTTP doors: each translates, asks for permission, and decides nothing."""
