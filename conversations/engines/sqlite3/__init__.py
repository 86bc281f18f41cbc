"""Django's SQLite backend, but every reported commit is in the file at the configured path."""
