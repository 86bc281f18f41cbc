"""A proxy in front of PostgreSQL that loses the answers to commits, or cuts them short."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit, urlunsplit

from django.db import connection

from tests.support.people.clients import database_url

COMMIT = b"COMMIT\0"
NAME = "by_the_proxy"
CHUNK = 64 * 1024
READY = b"Z\0\0\0\5I"
"""The end of an answer, behind a commit: the server is ready for the next query."""
_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
TERMINATED = b"E" + (len(_FIELDS) + 4).to_bytes(4, "big") + _FIELDS
"""What a session says whose end an administrator has asked for."""


class DatabaseProxy:
    """Used as a context, in which it passes connections on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self._instead_of_ready = b""
        self._then: Callable[[], None] | None = None
        self._are_delivered = True
        self._of = b""
        self._is_over = self._is_away = False
        address = urlsplit(database_url())
        self._target = (address.hostname or "127.0.0.1", address.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        user = address.netloc.rpartition("@")[0]
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        netloc = f"{user}@{host}" if user else host
        self.url = urlunsplit(address._replace(netloc=netloc, query=urlencode({"application_name": NAME})))
        """The database by way of this proxy."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        self._listener.close()
        _end_sessions()

    def lose_commits(
        self,
        count: int,
        *,
        of: bytes = b"",
        are_delivered: bool = True,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Cut the connections of the next `count` commits when they are done and before that is answered.

        Count only transactions in which the words `of` occurred. Without `are_delivered`, the database does
        not receive the commits. `then` is called before each cut.
        """
        with self._lock:
            self._of = of
            self._left, self._instead_of_ready = count, b""
            self._are_delivered, self._then = are_delivered, then

    def go_away(self) -> None:
        """Refuse connections from now on, as a database that is restarted."""
        self._is_away = True

    def come_back(self) -> None:
        """Pass connections on again."""
        self._is_away = False

    @property
    def has_lost_all(self) -> bool:
        """Whether all commits were lost that were to be."""
        return self._left <= 0

    def terminate_after_commits(self, count: int) -> None:
        """End the sessions of the next so many commits when they are done and told, as an administrator does.

        The session says so instead of being ready.
        """
        with self._lock:
            self._left, self._instead_of_ready = count, TERMINATED
            self._are_delivered, self._then, self._of = True, None, b""

    def _serve(self) -> None:
        while not self._is_over:
            with suppress(OSError):
                client, _ = self._listener.accept()
                if self._is_away:
                    client.close()
                    continue
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._target) as server:
            is_cut = threading.Event()
            threading.Thread(target=self._answer, args=(server, client, is_cut), daemon=True).start()
            said = b""
            while data := client.recv(CHUNK):
                said += data if self._of else b""
                if COMMIT in data:
                    if self._takes_one(said):
                        is_cut.set()
                        if not self._are_delivered:
                            self._cut()
                            client.shutdown(socket.SHUT_RDWR)
                            break
                    said = b""
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(CHUNK):
                if is_cut.is_set():  # it is the answer to the commit
                    break
                client.sendall(data)
            if is_cut.is_set() and not self._are_delivered:
                return  # the connection is cut once all is prepared
            if is_cut.is_set():
                self._cut()
            if self._instead_of_ready:
                client.sendall(self._cut_short(server, data))
            client.shutdown(socket.SHUT_RDWR)

    def _cut(self) -> None:
        if self._then is not None:
            self._then()

    def _cut_short(self, server: socket.socket, answer: bytes) -> bytes:
        """Return the rest of an answer up to its commit, and that the session is terminated."""
        while not answer.endswith(READY):
            answer += server.recv(CHUNK)
        return answer.removesuffix(READY) + self._instead_of_ready

    def _takes_one(self, said: bytes) -> bool:
        with self._lock:
            is_meant = self._of in said
            self._left -= is_meant
            return is_meant and self._left >= 0


def _end_sessions() -> None:
    """End what PostgreSQL has not noticed to be gone; a database in use could not be removed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = %s AND datname = current_database()",
            [NAME],
        )
