"""PostgreSQL, as Django has it, but without sessions that cannot write."""
