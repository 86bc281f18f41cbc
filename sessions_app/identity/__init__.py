"""Who asks, what they may do, and how that ends."""
