"""The durable half of convserver: conversations, their logs, and access to them."""
