"""Speed of the server beside the limits of the machine that it runs on: `python -m benchmarks`."""

import convserver as convserver  # chooses the library of SQLite
