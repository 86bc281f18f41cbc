"""What a browser fetches to install the pages, and the one it shows while the server is away."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import get_template
from django.templatetags.static import static
from django.urls import reverse
from django.views.decorators.http import require_safe

_SCRIPTS = Path(__file__).parents[2] / "static" / "web"
_NAMED = ("service_worker.js", "offline.js", "unsent_store.js", "style.css", "forms.css")


@require_safe
def manifest(request: HttpRequest) -> HttpResponse:
    """Return the web app manifest, by which a browser installs the pages and other apps share text."""
    home = reverse("home")
    return JsonResponse(
        {
            "name": "convserver",
            "short_name": "convserver",
            "description": "Conversations with AI agents, none of which is ever lost.",
            "id": home,
            "start_url": home,
            "scope": home,
            "display": "standalone",
            "background_color": "#faf9f7",
            "theme_color": "#0b6e4f",
            "icons": [{"src": static("web/icon.svg"), "sizes": "any", "type": "image/svg+xml"}],
            "share_target": {
                "action": reverse("new"),
                "method": "GET",
                "params": {"title": "title", "text": "text", "url": "url"},
            },
        },
        content_type="application/manifest+json",
    )


@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """Return the script that stands between the pages and the network."""
    script = (_SCRIPTS / "service_worker.js").read_text(encoding="utf-8")
    return HttpResponse(
        # A browser installs it anew when it differs, and with it what it keeps for the time without a server.
        f"{script}\n// {_digest()}\n",
        content_type="text/javascript; charset=utf-8",
        headers={"Service-Worker-Allowed": "/", "Cache-Control": "no-cache"},
    )


@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    """Show what is there without a server: the messages that wait in this browser, and room for more."""
    return render(request, "web/offline.html")


@cache
def _digest() -> str:
    page = get_template("web/offline.html").render({})
    kept = [page.encode(), *((_SCRIPTS / name).read_bytes() for name in _NAMED)]
    return sha256(b"\0".join(kept)).hexdigest()[:16]
