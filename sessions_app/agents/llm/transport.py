"""The libraries' transport to users' servers, with this server's guard, proxies and certificates.

The libraries use httpx2, the guard (`sessions_app.outbound`) httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import cast

import httpx
import httpx2

from sessions_app.agents.llm import refusals
from sessions_app.agents.llm.models import Target, Wire
from sessions_app.agents.llm.streams.answer import AnswerStream
from sessions_app.agents.llm.streams.events import UnreadableAnswer
from sessions_app.outbound.proxies import way_to

CONNECT_S = 10.0
READ_S = 180.0  # a model may think this long before its first word
ANSWER_MAX_BYTES = 64 * 1024 * 1024

# The libraries may fill these headers from the server's environment, with keys that are not the user's.
_KEYS = ("authorization", "x-api-key", "x-goog-api-key", "openai-organization", "openai-project")
_ACCEPTED = {"accept-encoding": "gzip, deflate"}
"""The encodings that this server decodes."""
_OF_BODY = (b"content-encoding", b"content-length", b"content-type", b"transfer-encoding")
_AUTHORIZATION = {
    Wire.OPENAI: ("authorization", "Bearer "),
    Wire.ANTHROPIC: ("x-api-key", ""),
    Wire.GOOGLE: ("x-goog-api-key", ""),
}


def client_of(target: Target, answer: AnswerStream | None = None) -> httpx2.AsyncClient:
    """Return a client for a model's server alone; `answer` reads the response. Raise UnusableProxy."""
    name, scheme = _AUTHORIZATION[target.wire]
    way = GuardedTransport(
        target.base_url,
        is_operators=target.is_operators,
        headers={**_ACCEPTED, **({name: f"{scheme}{target.key}"} if target.key else {})},
        without=_KEYS,
        answer=answer,
        refused=refusals.refused_by(target),
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
        answer: AnswerStream | None = None,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        """Add `headers` to each request, and omit `without` and the `refused` members of the body.

        `answer` reads the response. Raise UnusableProxy.
        """
        self._way = way_to(httpx.URL(url), is_operators=is_operators)
        self._origin = _origin(httpx.URL(url))
        self._added = dict(headers or {})
        self._without = without
        self._answer = answer
        self._refused = refused

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response with an unread body."""
        url = httpx.URL(str(request.url))
        # A server's answer may name another address to ask, which must not get the key.
        if _origin(url) != self._origin:
            raise httpx2.UnsupportedProtocol("Only one server is asked.")
        asked = httpx.Request(
            request.method,
            url,
            headers=self._headers(request),
            content=refusals.without_refused(await request.aread(), self._refused),
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        try:
            response = await self._way.handle_async_request(asked)
        except httpx.HTTPError as error:
            raise _translated(error) from error
        if self._answer is not None and response.is_success:
            body = _AnswerBody(response, self._answer)
            return httpx2.Response(
                response.status_code, headers=_headers_of_stream(response), stream=body, request=request
            )
        return httpx2.Response(
            response.status_code, headers=response.headers.raw, stream=_Body(response), request=request
        )

    def _headers(self, request: httpx2.Request) -> dict[str, str]:
        given = {name.lower(): value for name, value in request.headers.items()}
        # Without its refused members the body is shorter.
        left_out = {*self._without, *(["content-length"] if self._refused else [])}
        return {name: value for name, value in given.items() if name not in left_out} | self._added

    async def aclose(self) -> None:
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


class _AnswerBody(httpx2.AsyncByteStream):
    """The body of a model's answer, as its reader rewrites it for the library."""

    def __init__(self, response: httpx.Response, answer: AnswerStream) -> None:
        self._response = response
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer, size, failure = self._answer, 0, None
        try:
            body = cast(AsyncGenerator[bytes, None], self._response.aiter_bytes())
            async with aclosing(body) as parts:
                while not answer.is_over:
                    # After the reason of the end only the usage may follow; the connection may stay open.
                    async with asyncio.timeout(answer.REST_S if answer.has_ended else None):
                        part = await anext(parts, b"")
                    if not part:
                        break
                    size += len(part)
                    if size > ANSWER_MAX_BYTES:
                        raise httpx2.ReadError("The response is too long.")
                    yield answer.feed(part)
        except httpx.HTTPError as error:
            failure = error
        except TimeoutError:  # the answer has ended
            pass
        yield self._rest(is_cut=failure is not None)
        if failure is not None and not answer.has_ended:
            raise _translated(failure) from failure

    def _rest(self, *, is_cut: bool) -> bytes:
        try:
            return self._answer.close()
        except UnreadableAnswer:
            if is_cut:  # the cut explains it
                return b""
            raise

    async def aclose(self) -> None:
        await self._response.aclose()


def _headers_of_stream(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of a decoded and streamed body."""
    kept = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_BODY]
    return [*kept, (b"content-type", b"text/event-stream")]


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _translated(error: httpx.HTTPError) -> httpx2.HTTPError:
    """Return the failure as one of httpx2, which has the same class names."""
    named = getattr(httpx2, type(error).__name__, httpx2.TransportError)
    kind = named if isinstance(named, type) and issubclass(named, httpx2.HTTPError) else httpx2.TransportError
    return kind(str(error))
