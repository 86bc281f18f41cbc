"""Whether the store is whole: what is read again, what is recorded of it, and signed checkpoints."""
