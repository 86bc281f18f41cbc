"""What a database that has grown occupies, and how long the calls take that clients wait for."""
