"""WebSockets whose client is known: only then does the server read long frames from it.

The server adds an extension to the scope of each WebSocket; without one, as in tests, there is nothing to
do.
"""

from __future__ import annotations

from typing import Any

EXTENSION = "convserver.known_client"


def let_in(scope: Any) -> None:
    """Record that the client of this socket is authenticated; on the event loop, repeatable."""
    extension = (scope.get("extensions") or {}).get(EXTENSION)
    if extension is not None:
        extension["let_in"]()
