"""What is specific to SQLite and PostgreSQL: files, connections, upgrades, failures in words."""
