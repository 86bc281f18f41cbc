"""HTTP requests to providers: bounded in time, size and number; a token is sent to its own host only."""

from __future__ import annotations

import asyncio
import base64
from asyncio import Semaphore
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakValueDictionary

import httpx
import orjson

from conversations.payloads import bounds
from sessions_app.event_loops import PerEventLoop
from sessions_app.git_providers.base import (
    GitAuthenticationError,
    GitNotFound,
    GitProviderError,
    InvalidName,
    is_piece,
)
from sessions_app.outbound.hosts import HostRefused, port_of
from sessions_app.outbound.proxies import CONNECT_S, READ_S, TOTAL_S, UnusableProxy, way_to

ANSWER_MAX_BYTES = 8 * 1024 * 1024
# Requests to one host that run at once, so that a slow host delays no other.
CONCURRENT_MAX = 8
REDIRECTS_MAX = 3

Query = Mapping[str, str | int]

_gates = PerEventLoop[WeakValueDictionary[str, Semaphore]](WeakValueDictionary)


class ProviderReply(NamedTuple):
    label: str
    content: bytes
    headers: httpx.Headers

    @property
    def json(self) -> ProviderAnswer:
        """Parse it as JSON. Raise GitProviderError."""
        try:
            text = self.content.decode("utf-8", "replace")
            # orjson decodes as many in a few hundredths of a second, on the event loop.
            bounds.require_bounded(text, values_max=bounds.LARGE_VALUES_MAX)
            return ProviderAnswer(self.label, orjson.loads(self.content))
        except bounds.TooManyValues as error:
            raise GitProviderError(f"{self.label} returned a response that is too long.") from error
        except ValueError as error:  # not JSON, or nested too deeply
            raise GitProviderError(f"{self.label} returned a response that is not JSON.") from error

    @property
    def text(self) -> str:
        """Return it as text; invalid UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")

    @property
    def link_header(self) -> str | None:
        link: str | None = self.headers.get("link")
        return link


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """A provider's API below `root`, asked with one token.

    Asking raises GitAuthenticationError (401, 403), GitNotFound (404, 422), GitProviderError for other
    failures, and InvalidName for pieces that lead elsewhere.
    """

    label: str
    root: str
    authorization: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.authorization.isascii() and self.authorization.isprintable()):
            raise GitAuthenticationError(f"The {self.label} token contains invalid characters.")

    async def get(
        self, *pieces: str | int, query: Query | None = None, accept: str | None = None
    ) -> ProviderReply:
        headers = {"accept": accept} if accept else {}
        return await self._ask("GET", self._url(pieces, query or {}), headers=headers)

    async def post(
        self, *pieces: str | int, body: Mapping[str, object], query: Query | None = None
    ) -> ProviderReply:
        headers = {"content-type": "application/json"}
        content = orjson.dumps(body)
        return await self._ask("POST", self._url(pieces, query or {}), headers=headers, content=content)

    async def graphql(self, question: str, **variables: str | int) -> ProviderAnswer:
        """Ask a GraphQL question and return its data. Raise GitProviderError without data."""
        reply = await self.post(body={"query": question, "variables": variables})
        if reply.json.is_null("data"):
            raise GitProviderError(f"{self.label} did not answer the request.")
        return reply.json.at("data")

    def _url(self, pieces: tuple[str | int, ...], query: Query) -> httpx.URL:
        texts = [str(piece) for piece in pieces]
        # A slash inside a piece is quoted, too, so only what is resolved, such as `..`, could lead
        # elsewhere.
        if not all(is_piece(part) for text in texts for part in text.split("/")):
            raise InvalidName(f"{self.label} can have nothing of that name.")
        url = httpx.URL("/".join([self.root, *(quote(text, safe="") for text in texts)]))
        return url.copy_merge_params(dict(query)) if query else url

    async def _ask(
        self, method: str, url: httpx.URL, *, headers: Mapping[str, str], content: bytes | None = None
    ) -> ProviderReply:
        sent = {
            "accept": "application/json",
            # Read in pieces, so that a compressed answer cannot grow beyond its limit.
            "accept-encoding": "identity",
            "user-agent": "convserver",
            **self.headers,
            **headers,
            "authorization": self.authorization,
        }
        try:
            # Weak: the semaphore of a host lives while a request holds it or waits for it.
            gate = _gates.get().setdefault(_origin(url), Semaphore(CONCURRENT_MAX))
            async with asyncio.timeout(TOTAL_S), gate, _client(url, sent) as client:
                return await self._answered(client, method, url, content)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise GitProviderError(f"{self.label} did not answer in time.") from error
        except HostRefused as error:
            raise InvalidName(str(error)) from error
        except UnusableProxy as error:
            raise GitProviderError(str(error)) from error
        # A redirect may lead to a name that cannot be parsed.
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise GitProviderError(f"{self.label} could not be asked: {type(error).__name__}.") from error

    async def _answered(
        self, client: httpx.AsyncClient, method: str, url: httpx.URL, content: bytes | None
    ) -> ProviderReply:
        for _ in range(REDIRECTS_MAX + 1):
            async with client.stream(method, url, content=content) as response:
                if not response.has_redirect_location:
                    self._check(response)
                    return ProviderReply(self.label, await self._content(response), response.headers)
                url = self._redirected(response)
        raise GitProviderError(f"{self.label} redirects without end.")

    def _redirected(self, response: httpx.Response) -> httpx.URL:
        """Return the address of a redirect, on the same host."""
        asked = response.request
        target = asked.url.join(response.headers["location"])
        # A renamed repository redirects to its new name; the port counts, since another server may listen.
        if asked.method != "GET" or _origin(target) != _origin(asked.url):
            raise GitProviderError(f"{self.label} redirects to another host, which does not get the token.")
        return target

    def _check(self, response: httpx.Response) -> None:
        match response.status_code:
            # Azure DevOps answers 203 and a login page to invalid tokens.
            case 401 | 203:
                raise GitAuthenticationError(f"The {self.label} token is not valid.")
            case 429:
                raise GitProviderError(f"{self.label}'s rate limit was reached. Try again later.")
            # GitHub answers 403, too, where a rate limit was reached.
            case 403 if (
                response.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in response.headers
            ):
                raise GitProviderError(f"{self.label}'s rate limit was reached. Try again later.")
            case 403:
                raise GitAuthenticationError(f"The {self.label} token does not allow this.")
            # GitHub answers a search among an unknown owner's repositories with 422.
            case 404 | 422:
                raise GitNotFound(f"{self.label} does not show this.")
            case status if not 200 <= status < 300:
                raise GitProviderError(f"{self.label} answered with status {status}.")

    async def _content(self, response: httpx.Response) -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise GitProviderError(f"{self.label} gave an answer in a form that was not asked for.")
        content = bytearray()
        async for part in response.aiter_raw():
            content += part
            if len(content) > ANSWER_MAX_BYTES:
                raise GitProviderError(f"{self.label} returned a response that is too long.")
        return bytes(content)


def bearer(token: str) -> str:
    return f"Bearer {token.strip()}"


def basic(user_and_password: str) -> str:
    return f"Basic {base64.b64encode(user_and_password.strip().encode('utf-8', 'replace')).decode()}"


def _client(url: httpx.URL, headers: Mapping[str, str]) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers=dict(headers),
        transport=way_to(url),
        timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
        follow_redirects=False,  # _redirected checks each address before the token is sent there
    )


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.host}:{port_of(url)}"


class ProviderAnswer:
    """One JSON value of a provider, read without trust in its shape; the names of fields lead into it.

    Reading raises GitProviderError for a field of another type.
    """

    def __init__(self, label: str, value: object) -> None:
        self._label = label
        self._value = value

    def at(self, *path: str) -> ProviderAnswer:
        """Return the value there; null without one."""
        value = self._value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return ProviderAnswer(self._label, value)

    def text(self, *path: str) -> str:
        value = self.at(*path)._value
        if not isinstance(value, str):
            raise self._odd(path)
        return value

    def identity(self, *path: str) -> str:
        """Return an id as a text, also where it is a number."""
        number = self.number_or_none(*path)
        return self.text(*path) if number is None else str(number)

    def text_or_none(self, *path: str) -> str | None:
        value = self.at(*path)._value
        return value if isinstance(value, str) and value else None

    def number(self, *path: str) -> int:
        """Return a whole number, also where it is written as a text, as GraphQL's ids are."""
        text = self.identity(*path)
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):  # fits in 64 bits
            raise self._odd(path)
        return int(text)

    def number_or_none(self, *path: str) -> int | None:
        value = self.at(*path)._value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def is_true(self, *path: str) -> bool:
        return self.at(*path)._value is True

    def is_null(self, *path: str) -> bool:
        return self.at(*path)._value is None

    def each(self, *path: str) -> list[ProviderAnswer]:
        """Return the objects of a list, without nulls."""
        value = self.at(*path)._value
        if not isinstance(value, list) or not all(
            item is None or isinstance(item, Mapping) for item in value
        ):
            raise self._odd(path)
        return [ProviderAnswer(self._label, item) for item in value if item is not None]

    def _odd(self, path: tuple[str, ...]) -> GitProviderError:
        return GitProviderError(f"{self._label} gave an answer without {'.'.join(path) or 'a list'}.")
