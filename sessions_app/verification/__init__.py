"""The server's own verifications, at each start and every night, and that of leases."""
