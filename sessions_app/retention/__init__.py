"""The deletion of conversations: policies, purges, and all places from which a purge removes data."""
