"""What the command `convserver` does: serving, and work that ends by itself."""
