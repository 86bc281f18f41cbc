"""Verification as the server does it: leases, at each start, and every night."""
