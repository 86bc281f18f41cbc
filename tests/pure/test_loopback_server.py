"""The HTTP server that tests stand on."""

from __future__ import annotations

import socket

from tests.support.people.clients import HTTP
from tests.support.servers.loopback_server import LoopbackServer, Request


class Echo(LoopbackServer):
    """Says the path."""

    def take(self, request: Request) -> None:
        request.reply(200, request.path.encode())


def test_it_ends_though_a_client_has_connected_and_sends_nothing() -> None:
    with Echo() as server:
        host, _, port = server.address.partition(":")
        silent = socket.create_connection((host, int(port)))
        assert HTTP.get(f"http://{server.address}/words").text == "/words"  # so the other is connected, too
    silent.close()
