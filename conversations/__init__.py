"""The durable half of convserver: conversations, their logs, and who may touch them."""
