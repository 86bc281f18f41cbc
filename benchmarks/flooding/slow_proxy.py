"""A proxy on loopback that takes every connection and never answers, as a slow host behind it seems to do."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class SlowProxy:
    """Listens while it is entered."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._taken: list[socket.socket] = []

    @property
    def url(self) -> str:
        """Return its address, as `HTTPS_PROXY` takes it."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._take, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Whoever waits in `accept` is woken by this, and not by a close alone.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for taken in self._taken:
            taken.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.append(self._listening.accept()[0])
