"""Django's SQLite, but sure that what it commits is in the file under the path."""
