"""The way of a library to a server that a user has named: this server's own guard, proxies and certificates.

The libraries speak httpx2, and the guard (`sessions_app.outbound`) is one of httpx.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import cast

import httpx
import httpx2

from sessions_app.agents.llm.models import Target, Wire
from sessions_app.outbound.proxies import way_to

CONNECT_S = 10.0
READ_S = 180.0
"""A model may think for at most this long before it says anything."""
ANSWER_MAX_BYTES = 64 * 1024 * 1024

_KEYS = ("authorization", "x-api-key", "x-goog-api-key", "openai-organization", "openai-project")
"""Headers that the libraries also fill from the server's environment, which is not the user's."""
_AUTHORIZATION = {
    Wire.OPENAI: ("authorization", "Bearer "),
    Wire.ANTHROPIC: ("x-api-key", ""),
    Wire.GOOGLE: ("x-goog-api-key", ""),
}


def client_of(target: Target) -> httpx2.AsyncClient:
    """Return a client that asks a model's server, and no other. Raise UnusableProxy."""
    name, scheme = _AUTHORIZATION[target.wire]
    way = GuardedTransport(
        target.base_url,
        is_operators=target.is_operators,
        headers={name: f"{scheme}{target.key}"} if target.key else {},
        without=_KEYS,
    )
    return httpx2.AsyncClient(
        transport=way,
        timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests of httpx2 to one server by a transport of httpx."""

    def __init__(
        self,
        url: str,
        *,
        is_operators: bool = False,
        headers: Mapping[str, str] | None = None,
        without: Collection[str] = (),
    ) -> None:
        """`headers` are added to each request, and those `without` left out. Raise UnusableProxy."""
        self._way = way_to(httpx.URL(url), is_operators=is_operators)
        self._origin = _origin(httpx.URL(url))
        self._added = dict(headers or {})
        self._without = without

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response with a body that is still to be read."""
        url = httpx.URL(str(request.url))
        if _origin(url) != self._origin:
            raise httpx2.UnsupportedProtocol("Only one server is asked.")
        asked = httpx.Request(
            request.method,
            url,
            headers=self._headers(request),
            content=await request.aread(),
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        try:
            response = await self._way.handle_async_request(asked)
        except httpx.HTTPError as error:
            raise _translated(error) from error
        return httpx2.Response(
            response.status_code, headers=response.headers.raw, stream=_Body(response), request=request
        )

    def _headers(self, request: httpx2.Request) -> dict[str, str]:
        given = {name.lower(): value for name, value in request.headers.items()}
        return {name: value for name, value in given.items() if name not in self._without} | self._added

    async def aclose(self) -> None:
        """Close the connection."""
        await self._way.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of a response, as it comes."""

    def __init__(self, response: httpx.Response) -> None:
        self._stream = cast(httpx.AsyncByteStream, response.stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._stream:
                size += len(part)
                if size > ANSWER_MAX_BYTES:
                    raise httpx2.ReadError("The response is too long.")
                yield part
        except httpx.HTTPError as error:
            raise _translated(error) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _translated(error: httpx.HTTPError) -> httpx2.HTTPError:
    """Return the same failure of the other library, which names its classes alike."""
    named = getattr(httpx2, type(error).__name__, httpx2.TransportError)
    kind = named if isinstance(named, type) and issubclass(named, httpx2.HTTPError) else httpx2.TransportError
    return kind(str(error))
