"""Several processes: servers without loops, and workers that run them."""
