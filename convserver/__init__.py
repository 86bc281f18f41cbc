"""The project: settings, routes, and the doors that speak HTTP."""

from conversations.engines.sqlite3 import library

__version__ = "0.1.0"

# Every process of convserver imports this package first, and with it chooses the library of SQLite.
library.use_fixed()
