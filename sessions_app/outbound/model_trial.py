"""The test of a user's model as it is configured: one request, and a sentence about the problem.

The server at the base URL gets the requests of OpenAI's clients: its list of models, then one token.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import orjson

from conversations.dialects import columns
from conversations.exceptions import ConversationError
from conversations.payloads import bounds
from sessions_app.outbound.hosts import HostRefused, require_allowed, server_url
from sessions_app.outbound.proxies import CONNECT_S, READ_S, TOTAL_S, UnusableProxy, way_to

# Of a kind, models or tool servers, in this process: each test occupies a thread.
TRIALS_MAX = 4
# The longest known list of models has a tenth of it.
ANSWER_MAX_BYTES = 4 * 1024 * 1024
TOO_LONG = "The server's response is too long. The base URL doesn't lead to a model API."

ANTHROPIC = "api.anthropic.com"
KNOWN_SERVERS = {
    "anthropic": f"https://{ANTHROPIC}/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "xai": "https://api.x.ai/v1",
}
"""Addresses without a base URL, by the part before the slash in a model's name."""


class InvalidBaseUrl(ConversationError):
    """No model can be reached at this address; the text has the reason."""

    code = "invalid_base_url"


class TrialUnderWay(ConversationError):
    """Nothing is tested now, because others are; the text has the advice."""

    code = "trial_under_way"

    def __init__(self) -> None:
        super().__init__("Another test is running. Wait until it ends, then test again.")


class Finding(NamedTuple):
    """The result, in words for the user."""

    is_fault: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSetup:
    model: str
    base_url: str
    key: str = field(repr=False)


class ServerFault(Exception):
    """Why a model's server cannot be used; the text has the advice."""


def checked_base_url(text: str) -> str:
    """Return the address without a trailing slash. Raise InvalidBaseUrl, without the address."""
    url = server_url(text)
    if url is None:
        raise InvalidBaseUrl(
            "Enter a base URL that starts with https:// or http://, for example https://api.example.org/v1."
        )
    if url.userinfo or url.query or url.fragment:
        raise InvalidBaseUrl(
            "Remove the password, the ? or the # from the base URL. Enter the key in its own field."
        )
    if url.path.rstrip("/").endswith("/completions"):
        raise InvalidBaseUrl("Remove the path of the endpoint, such as /chat/completions, from the base URL.")
    try:
        require_allowed(url)
    except HostRefused as error:
        raise InvalidBaseUrl(str(error)) from None
    return str(url).rstrip("/")


_under_way: set[int] = set()


async def try_model(user_id: int, setup: ModelSetup) -> Finding:
    """Test a user's model like `ask_model`. Raise TrialUnderWay beyond the limit."""
    with admitted(user_id, _under_way):
        return await ask_model(setup)


@contextmanager
def admitted(user_id: int, under_way: set[int]) -> Iterator[None]:
    """Count a user's test among those under way. Raise TrialUnderWay for a second one, or too many."""
    if user_id in under_way or len(under_way) >= TRIALS_MAX:
        raise TrialUnderWay
    under_way.add(user_id)
    try:
        yield
    finally:
        under_way.discard(user_id)


async def ask_model(setup: ModelSetup) -> Finding:
    """Ask the model's server, and return the result in words; stores nothing and raises nothing."""
    try:
        async with opened(_base_url(setup), setup.key) as client:
            return Finding(is_fault=False, text=await _asked(client, setup.model))
    except (ServerFault, InvalidBaseUrl) as fault:
        return Finding(is_fault=True, text=str(fault))


@asynccontextmanager
async def opened(base_url: str, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a model's server; raise ServerFault for all that fails in the block."""
    try:
        async with asyncio.timeout(TOTAL_S), client_at(base_url, key) as client:
            yield client
    except (UnusableProxy, HostRefused) as error:
        raise ServerFault(str(error)) from None
    except (TimeoutError, httpx.TimeoutException):
        raise ServerFault(
            "The server didn't respond in time. It may be down, slow or behind a firewall."
        ) from None
    # A redirect may lead to a name that cannot be parsed.
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
        raise ServerFault(_connection_fault(error)) from None


def _base_url(setup: ModelSetup) -> str:
    if setup.base_url:
        return checked_base_url(setup.base_url)
    if not setup.model:
        raise ServerFault("There is nothing to test yet. Enter a model.")
    server = KNOWN_SERVERS.get(setup.model.partition("/")[0])
    if server is None:
        raise ServerFault("The provider can't be told from the model's name. Enter the base URL.")
    return server


def client_at(base_url: str, key: str) -> httpx.AsyncClient:
    """Return a client of a model's server. Raise ServerFault for a key that no header holds."""
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "convserver"}
    if key:
        if not (key.isascii() and key.isprintable()):
            raise ServerFault("The key contains invalid characters. Copy it again, without line breaks.")
        headers["authorization"] = f"Bearer {key}"
    url = httpx.URL(base_url)
    # It takes the key for its list of models in a header of its own.
    if key and url.host == ANTHROPIC:
        headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return httpx.AsyncClient(
        base_url=base_url,
        headers=headers,
        transport=way_to(url),
        timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
        follow_redirects=False,
    )


async def _asked(client: httpx.AsyncClient, model: str) -> str:
    """Return the result of the requests. Raise ServerFault."""
    rows = await listed(client)
    names = None if rows is None else {row["id"] for row in rows}
    if not model:
        if names is None:
            raise ServerFault("Not found (404). Check the base URL; most end with /v1.")
        return "The server responds. Enter a model to test it, too."
    own_name = model.partition("/")[2] if "/" in model else model  # without the provider in front
    question = {"model": own_name, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    status, _ = await answer_of(client, "POST", "chat/completions", body=question)
    if status not in (400, 404, 405, 422):
        refuse(status)
        return "The model works."
    # Some servers have unlisted models, and some models refuse so short an answer.
    if names is not None and {model, own_name, f"models/{own_name}"} & names:
        return f"The server accepts the key and has the model, but rejected the test request ({status})."
    raise ServerFault(_no_model(status, is_path_right=names is not None))


def _no_model(status: int, *, is_path_right: bool) -> str:
    if is_path_right:
        return "The server responds, but has no model with this name. Check the spelling."
    if status in (404, 405):
        return (
            f"The server returned {status}. The path of the base URL is wrong (most end with /v1), or the "
            "server has no such model."
        )
    return f"The server rejected the request ({status}). Check the spelling of the model's name."


async def listed(client: httpx.AsyncClient) -> Sequence[Mapping[str, Any]] | None:
    """Return the rows of the server's list of models, each with an `id`; None without a list.

    Raise ServerFault.
    """
    status, content = await answer_of(client, "GET", "models")
    if status in (404, 405, 501):
        return None
    refuse(status)
    try:
        bounds.require_bounded(content.decode("utf-8", "replace"))
        found = columns.fields(orjson.loads(content)).get("data")
    except bounds.TooManyValues:
        raise ServerFault(TOO_LONG) from None
    except ValueError:
        raise ServerFault(
            "The response isn't JSON. The base URL leads to a web page, not to an API."
        ) from None
    rows = [columns.fields(row) for row in found] if isinstance(found, list) else []
    return [row for row in rows if isinstance(row.get("id"), str)]


async def answer_of(
    client: httpx.AsyncClient, method: str, path: str, body: dict[str, object] | None = None
) -> tuple[int, bytes]:
    """Return status and content. Raise ServerFault for an answer without end."""
    # Raw pieces, without decompression: a few bytes could become gigabytes.
    content = bytearray()
    async with client.stream(method, path, json=body) as response:
        async for part in response.aiter_raw():
            content += part
            if len(content) > ANSWER_MAX_BYTES:
                raise ServerFault(TOO_LONG)
        return response.status_code, bytes(content)


def refuse(status: int) -> None:
    match status:
        case 200 | 201:
            return
        case 401:
            raise ServerFault("The server rejected the key (401). It is wrong, expired or missing.")
        case 402:
            raise ServerFault("The account is out of credits (402). Check the account the key belongs to.")
        case 403:
            raise ServerFault(
                "The key isn't allowed to use this (403). Check its permissions, or use another."
            )
        case 429:
            raise ServerFault("The rate limit was reached (429). Wait, or check the quota.")
        case status if 300 <= status < 400:
            raise ServerFault("The server redirects to another address. Enter that address as the base URL.")
        case status if status >= 500:
            raise ServerFault(f"The server failed ({status}). Try again later.")
        case _:
            raise ServerFault(f"The server returned status {status}. Check the base URL.")


def _connection_fault(error: Exception) -> str:
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "The server's name wasn't found. Check the spelling of the base URL."
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "The server's certificate isn't trusted. It is expired, self-signed or for another name."
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "The server doesn't use TLS on this port. Try http:// instead of https://, or another port."
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "Connection refused. Check the port, and that the server is running."
    if isinstance(error, httpx.RemoteProtocolError):
        return "There is no HTTP server on this port. Check the port, and whether to use http:// or https://."
    return f"The connection failed ({type(error).__name__}). Check the address and the network."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__
