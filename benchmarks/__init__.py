"""Speed of the server beside the limits of the machine that it runs on: `python -m benchmarks`."""
