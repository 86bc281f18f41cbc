"""uvicorn with the settings of the server's own, for what is compared with it."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

from convserver.configuration import MESSAGE_MAX_BYTES


def serve(application: Any) -> None:
    """Serve an application on the port that the command line names."""
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        ws="websockets-sansio",
        ws_max_size=MESSAGE_MAX_BYTES,
        ws_per_message_deflate=False,
        access_log=False,
        log_level="warning",
        lifespan="off",
    )
