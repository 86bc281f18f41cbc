"""Django's SQLite backend; every reported commit is in the file at the configured path."""
