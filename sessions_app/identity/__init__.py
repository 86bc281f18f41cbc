"""Who a client is, what it may do, and the end of its access."""
