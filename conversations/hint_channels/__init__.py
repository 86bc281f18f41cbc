"""The channels that carry hints between processes: over Redis, or over PostgreSQL alone."""
