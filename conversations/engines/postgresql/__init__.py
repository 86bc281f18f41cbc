"""Django's PostgreSQL backend, but without sessions that cannot write."""
