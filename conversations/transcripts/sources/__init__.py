"""Other programs' conversations: a reader for each format, all of which yield the same shapes."""
