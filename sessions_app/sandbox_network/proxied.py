"""One connection of a program in a sandbox to the proxy: a tunnel, or one request for `http://`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11

from sessions_app.outbound.hosts import port_of
from sessions_app.sandbox_network.connecting import ProxyRefusal, connected, plain_url, tunnel_url
from sessions_app.sandbox_network.sides import HttpSide

# Headers of one connection, which end at a proxy. Those that frame the body stay, because the other side
# frames it in the same way.
_OF_ONE_CONNECTION = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
    *(b"te", b"trailer", b"upgrade"),
}
_FRAMING = {b"content-length", b"transfer-encoding"}

Headers = list[tuple[bytes, bytes]]


class ProxyBounds:
    """What one connection may take."""

    head_s = 30.0
    """Until the request is whole."""
    idle_s = 600.0
    """Without a byte in either direction. Servers of repositories are silent for minutes."""
    linger_s = 2.0
    """After an answer, for a client that still sends."""


async def serve(client: socket.socket) -> None:
    """Serve one connection of a sandbox until its end, and close it."""
    client.setblocking(False)
    side = HttpSide(client, h11.SERVER)
    with client, suppress(OSError, h11.ProtocolError):
        try:
            async with asyncio.timeout(ProxyBounds.head_s):
                request = await side.received()
            if isinstance(request, h11.Request):
                await (_tunnel if request.method == b"CONNECT" else _forward)(side, request)
        except ProxyRefusal as refusal:
            await _refuse(side, refusal)
        except TimeoutError:
            if side.http.our_state is h11.SEND_RESPONSE:
                await _refuse(side, ProxyRefusal(504, "The server was silent for too long."))
        except h11.RemoteProtocolError as error:
            await _refuse(side, ProxyRefusal(error.error_status_hint, f"The request is not valid: {error}."))


async def _refuse(side: HttpSide, refusal: ProxyRefusal) -> None:
    """Answer with a sentence, unless an answer has begun."""
    if side.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    body = f"{refusal}\n".encode()
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    reason = HTTPStatus(refusal.status).phrase
    await side.send(h11.Response(status_code=refusal.status, headers=headers, reason=reason))
    await side.send(h11.Data(data=body))
    await side.send(h11.EndOfMessage())
    await _linger(side.socket)


async def _linger(client: socket.socket) -> None:
    """Read on for a moment: a client that still sends when the connection is closed loses the answer."""
    client.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(ProxyBounds.linger_s):
        while await asyncio.get_running_loop().sock_recv(client, HttpSide.piece_bytes):
            pass


async def _tunnel(client: HttpSide, request: h11.Request) -> None:
    """Pass on bytes in both directions. Raise ProxyRefusal."""
    loop = asyncio.get_running_loop()
    remote, early = await connected(tunnel_url(request.target))
    with remote:
        while not isinstance(await client.received(), h11.EndOfMessage):
            pass  # CONNECT has no body
        await client.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        async with asyncio.timeout(ProxyBounds.idle_s) as idle:

            async def relay(source: socket.socket, target: socket.socket, first: bytes) -> None:
                piece = first or await loop.sock_recv(source, HttpSide.piece_bytes)
                while piece:
                    await loop.sock_sendall(target, piece)
                    idle.reschedule(loop.time() + ProxyBounds.idle_s)
                    piece = await loop.sock_recv(source, HttpSide.piece_bytes)
                target.shutdown(socket.SHUT_WR)

            await _until_both_end(
                relay(client.socket, remote, client.http.trailing_data[0]),
                relay(remote, client.socket, early),
            )


async def _forward(client: HttpSide, request: h11.Request) -> None:
    """Pass on one request and its answer; then the connection ends. Raise ProxyRefusal."""
    loop = asyncio.get_running_loop()
    url = plain_url(request.target)
    opened = await connected(url)
    host = url.raw_host if b":" not in url.raw_host else b"[%b]" % url.raw_host
    named = host if url.port is None else b"%b:%d" % (host, port_of(url))
    headers = [(b"Host", named), *_passed(request.headers.raw_items(), b"host"), (b"Connection", b"close")]
    with opened.socket:
        server = HttpSide(opened.socket, h11.CLIENT)
        async with asyncio.timeout(ProxyBounds.idle_s) as idle:
            server.on_piece = client.on_piece = lambda: idle.reschedule(loop.time() + ProxyBounds.idle_s)
            await server.send(h11.Request(method=request.method, target=url.raw_path, headers=headers))
            await _until_both_end(_upload(client, server), _download(server, client))
    await _linger(client.socket)


async def _upload(client: HttpSide, server: HttpSide) -> None:
    """Pass on the body of a request."""
    while isinstance(event := await client.received(), h11.Data):
        try:
            await server.send(h11.Data(data=bytes(event.data)))
        except OSError:  # the server takes no more, and its answer says why
            return
    if isinstance(event, h11.EndOfMessage):
        await server.send(h11.EndOfMessage())


async def _download(server: HttpSide, client: HttpSide) -> None:
    """Pass on an answer. Raise _AnswerIsWhole at its end, because the rest of a body is not wanted then."""
    try:
        while not isinstance(event := await server.received(), h11.EndOfMessage):
            match event:
                case h11.InformationalResponse():
                    if client.http.their_http_version != b"1.0":
                        news = h11.InformationalResponse(status_code=event.status_code, headers=[])
                        await client.send(news)
                case h11.Response():
                    headers = [*_passed(event.headers.raw_items()), (b"Connection", b"close")]
                    await client.send(
                        h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                    )
                case h11.Data():
                    await client.send(h11.Data(data=bytes(event.data)))
                case _:
                    raise h11.RemoteProtocolError("the server has closed the connection")
    except h11.RemoteProtocolError:
        raise ProxyRefusal(502, "The server gave no valid answer.") from None
    await client.send(h11.EndOfMessage())
    raise _AnswerIsWhole


class _AnswerIsWhole(Exception):
    """All of an answer was passed on."""


async def _until_both_end(*works: Coroutine[Any, Any, None]) -> None:
    """Run two directions; the failure of one ends the other, and is raised."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for each in done:
            each.result()
    except _AnswerIsWhole:
        pass
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _passed(headers: Iterable[tuple[bytes, bytes]], *replaced: bytes) -> Headers:
    """Return the headers that a proxy passes on."""
    given = list(headers)
    named = {
        token.strip().lower()
        for name, value in given
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    left_out = (_OF_ONE_CONNECTION | named | set(replaced)) - _FRAMING
    return [(name, value) for name, value in given if name.lower() not in left_out]
