"""The native REST door, asked inside this process with the keys of the MCP client.

So its checks of keys, scopes, shares and limits, and its sentences, hold for MCP as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from sessions_app.identity.authentication import headers_of
from sessions_app.identity.key_throttle import address_of, is_secure

WAIT_S = 60.0
_KEYS = ("authorization", "x-session-api-key")
_PROXY = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")


class NativeRefused(Exception):
    """The native door refused the request; the text gives the reason and the remedy."""


class NativeDoor:
    """A client of the native door, for the time of a `with` block."""

    def __init__(self, application: Any, scope: Mapping[str, Any] | None = None, *, token: str = "") -> None:
        """Take the keys from `scope`, that of a request over HTTP; without one use `token`, if any."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        address, host, scheme = "127.0.0.1", "localhost", "http"
        if scope is not None:
            sent = headers_of(scope)  # type: ignore[arg-type]
            # Nothing else is passed on: a cookie would be a login of this site's pages.
            headers = {name: sent[name] for name in (*_KEYS, *_PROXY) if name in sent}
            address, host = address_of(scope), sent.get("host", host)
            scheme = "https" if is_secure(scope, sent) else "http"
        self._client = httpx.AsyncClient(
            # The address of the client, by which guessed keys and requests without one are counted.
            transport=httpx.ASGITransport(application, raise_app_exceptions=False, client=(address, 0)),
            base_url=f"{scheme}://localhost",
            headers={**headers, "host": host, "accept": "application/json"},
            timeout=WAIT_S,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def get(self, *path: str, **query: Any) -> Any:
        """Return the JSON at this path below `/api/native`; a None is no parameter. Raise NativeRefused."""
        asked = {name: value for name, value in query.items() if value is not None}
        return _body(await self._client.get(_address(path), params=asked))

    async def post(self, *path: str, body: Any) -> Any:
        """Send JSON to this path below `/api/native`; return the JSON of the answer. Raise NativeRefused."""
        return _body(await self._client.post(_address(path), json=body))


def _address(path: Sequence[str]) -> str:
    # Quoted whole: an id that a model has made up must not lead to another address.
    return "/".join(["/api/native", *(quote(part, safe="") for part in path)])


def _body(answer: httpx.Response) -> Any:
    if answer.is_success:
        return answer.json()
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, LookupError, TypeError):
        detail = f"The server has answered {answer.status_code}. Try again later."
    raise NativeRefused(detail)
