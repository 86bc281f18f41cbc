"""The project: settings, routes, and the doors that speak HTTP."""

from conversations.engines.sqlite3 import library

__version__ = "0.1.0"
WIRE_VERSION = "1.58.2"
"""The release of OpenHands' agent server whose wire is spoken: its clients refuse a server below theirs."""

# Every process of convserver imports this package first, and with it chooses the library of SQLite.
library.use_fixed()
