"""A browser without scripts: it keeps cookies, follows no redirect by itself, and sends forms as pages do."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import httpx
from django.contrib.auth.models import User
from django.test import Client

from convserver.asgi import application
from sessions_app import astore

HOST = "localhost"
COOKIES_OF = "localhost.local"
"""What the standard library's cookie jar calls a host without a dot."""


class Browser:
    """One browser at one address."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        transport = httpx.ASGITransport(app=application, client=(address, 1))
        self.http = httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}")

    async def log_in(self, user: User) -> None:
        """Have a login without a form."""
        client = Client()
        await astore.call(client.force_login, user)
        self.http.cookies.set("sessionid", client.cookies["sessionid"].value, domain=COOKIES_OF)

    @property
    def session_key(self) -> str | None:
        return self.http.cookies.get("sessionid", domain=COOKIES_OF)

    @property
    def headers(self) -> dict[str, str]:
        """What it sends with a handshake."""
        return {"cookie": f"sessionid={self.session_key}"}

    async def get(self, path: str) -> httpx.Response:
        return await self.http.get(path)

    async def send(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        page: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a form that stands on `page`, with the token that the page would have given it."""
        token = self.http.cookies.get("csrftoken", domain=COOKIES_OF) or "c" * 32
        self.http.cookies.set("csrftoken", token, domain=COOKIES_OF)
        return await self.http.post(
            path,
            data={**(form or {}), "csrfmiddlewaretoken": token},
            headers={"referer": f"http://{HOST}{page or path}", **(headers or {})},
        )


def words(answer: httpx.Response) -> str:
    """Return what a page says, without its tags."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", answer.text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))
