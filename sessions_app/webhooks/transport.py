"""Outgoing webhooks: what an agent server sends about its conversations (spec V1 §3.6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import orjson
from django.conf import settings

from conversations.dialects import v1
from conversations.exceptions import ConversationError
from sessions_app.encryption import Sealed, SecretUnreadable, seal
from sessions_app.models import Endpoint, EndpointKind
from sessions_app.outbound.hosts import HostRefused, is_listed, require_allowed, server_url
from sessions_app.outbound.proxies import CONNECT_S, UnusableProxy, way_to
from sessions_app.webhooks.deliveries import begin
from sessions_app.webhooks.notifications import DeliveryFailed, Notification, NotificationKind

KEY_HEADER = "X-Session-API-Key"
# Another value of these would break the request, or change what server it is for.
OWN_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})


class InvalidWebhook(ConversationError):
    """This cannot be the address or a header of a webhook."""

    code = "invalid_webhook"


@dataclass(frozen=True, slots=True)
class WebhookCredentials:
    """What a webhook's requests carry; its `repr` shows no value."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    session_key: str = field(default="", repr=False)

    def sealed(self) -> Sealed:
        return seal(json.dumps({"headers": dict(self.headers), "session_key": self.session_key}))


def opened(endpoint: Endpoint) -> WebhookCredentials:
    """Return the decrypted credentials. Raise SecretUnreadable."""
    found = json.loads(endpoint.sealed.open())
    return WebhookCredentials(found["headers"], found["session_key"])


def create(base_url: str, credentials: WebhookCredentials | None = None, **columns: Any) -> Endpoint:
    """Store a webhook, which is notified of everything from now on. Raise InvalidWebhook."""
    endpoint = Endpoint(kind=EndpointKind.WEBHOOK, base_url=checked_url(base_url), **columns)
    endpoint.name = endpoint.name or endpoint.base_url
    seal_into(endpoint, credentials or WebhookCredentials())
    return begin(endpoint)


def seal_into(endpoint: Endpoint, credentials: WebhookCredentials) -> None:
    """Set what the requests carry; the row is not saved."""
    endpoint.sealed = credentials.sealed()
    endpoint.header_names = sorted(credentials.headers)
    endpoint.has_session_key = bool(credentials.session_key)


def checked_url(text: str) -> str:
    """Return an address without a slash at its end. Raise InvalidWebhook.

    The error does not repeat the text, which may hold a password.
    """
    url = server_url(text)
    if url is None:
        raise InvalidWebhook("A webhook's address looks like https://example.org/hooks.")
    if url.userinfo or url.query or url.fragment:
        raise InvalidWebhook("A webhook's address has no password, no query and no fragment.")
    try:
        require_allowed(url)
    except HostRefused as error:
        raise InvalidWebhook(str(error)) from None
    if settings.CONFIGURATION.auth == "accounts" and url.scheme != "https" and not is_listed(url):
        raise InvalidWebhook("With accounts, a webhook is asked over https only.")
    return str(url).rstrip("/")


def checked_headers(text: str) -> dict[str, str]:
    """Read headers, `Name: value` on a line each. Raise InvalidWebhook; no value is repeated."""
    headers: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition(":")
        name, value = name.strip(), value.strip()
        is_printable = (name + value).isascii() and (name + value).isprintable()
        if not (separator and name and value and is_printable and " " not in name):
            raise InvalidWebhook("A header is `Name: value`, in printable ASCII, on a line of its own.")
        if name.lower() in OWN_HEADERS:
            raise InvalidWebhook(f"The header {name} is the server's own.")
        headers[name] = value
    return headers


class Webhook:
    """The transport of one webhook: each notification is one POST."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: httpx.AsyncClient | None = None

    async def deliver(self, notification: Notification) -> None:
        """Post the notification if the wire has a call for it. Raise DeliveryFailed unless it answers 2xx."""
        if notification.kind is NotificationKind.APPENDED:
            conversation = quote(notification.conversation.public_id, safe="")
            texts = [v1.shown(event, notification.conversation.public_id) for event in notification.events]
            await self._post(f"events/{conversation}", f"[{','.join(texts)}]".encode())
        elif notification.information is not None:
            await self._post("conversations", orjson.dumps(notification.information))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, path: str, content: bytes) -> None:
        url = httpx.URL(f"{self._endpoint.base_url}/{path}")
        try:
            async with asyncio.timeout(self._endpoint.timeout_s):
                self._client = self._client or self._new_client()
                request = self._client.build_request("POST", url, content=content, headers=self._headers())
                response = await self._client.send(request, stream=True)
                await response.aclose()  # only the status of the answer matters
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DeliveryFailed("No response in time.") from error
        except (HostRefused, UnusableProxy) as error:
            raise DeliveryFailed(str(error)) from error
        except SecretUnreadable as error:
            raise DeliveryFailed("The stored headers can't be decrypted. Enter them again.") from error
        # A redirect may lead to a name that cannot be parsed.
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise DeliveryFailed(f"Not reachable: {type(error).__name__}.") from error
        if not response.is_success:
            raise DeliveryFailed(f"It responded with status {response.status_code}.")

    def _new_client(self) -> httpx.AsyncClient:
        """Return the client for the webhook's server. Raise UnusableProxy."""
        timeout_s = self._endpoint.timeout_s
        return httpx.AsyncClient(
            transport=way_to(httpx.URL(self._endpoint.base_url)),
            timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            # A redirect may lead to another server, which was not checked.
            follow_redirects=False,
            trust_env=False,  # way_to has chosen the proxy
        )

    def _headers(self) -> dict[str, str]:
        credentials = opened(self._endpoint)
        headers = {"user-agent": "convserver", **credentials.headers, "content-type": "application/json"}
        if credentials.session_key:
            headers[KEY_HEADER] = credentials.session_key
        return headers
