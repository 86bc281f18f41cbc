"""A built single-page frontend at `/`: its files, and its first page for all addresses of pages."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

from csp.decorators import csp_exempt
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt
from whitenoise.media_types import MediaTypes
from whitenoise.responders import StaticFile

from convserver.api.errors import NO_CACHE
from convserver.serving.static_files import whole

INDEX = "index.html"
# The first parts of convserver's own addresses: a client that misspells one must get 404, not a page.
OUR_OWN = frozenset(
    {
        *("admin", "agent", "api", "mcp", "oauth", "security", "socket.io", "static", "ui", "ws"),
        *("alive", "health", "ready", "server_info", "metrics"),
    }
)
# Folders without pages: a request for a missing script must not be answered with a page.
FILES_ONLY = frozenset({"assets", "locales"})
ASSETS = "assets"
# The policy of a frontend: it may ask only this server, so that no other host learns of its users.
POLICY = {
    "default-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
# An attribute in the first page of OpenHands' agent canvas, which reads members of `window`.
AGENT_CANVAS = "data-agent-server-ui"
# Names of assets contain a digest of the file (spec V0 §0.1).
FOREVER = {"Cache-Control": "public, max-age=2592000, immutable"}

_media_types = MediaTypes()


@csrf_exempt  # so that an unknown address gives 404 for each method
@csp_exempt()  # type: ignore[arg-type]  # typed for views that take only a request
def show(request: HttpRequest, path: str) -> HttpResponse:
    """Return the file at this path, or the first page, whose script shows the page of this address."""
    root = settings.CONFIGURATION.frontend_dir
    parts = path.split("/")
    if root is None or parts[0] in OUR_OWN:
        raise Http404
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    headers = FOREVER if parts[0] == ASSETS else NO_CACHE
    if path != INDEX and (file := _file(root, parts)) and (answer := _sent(request, file, headers)):
        return answer
    is_page = parts[0] not in FILES_ONLY
    if is_page and (index := _file(root, [INDEX])) and (answer := _first_page(request, index)):
        return answer
    return HttpResponse("Not Found", status=404, content_type="text/plain", headers=NO_CACHE)


def _first_page(request: HttpRequest, index: Path) -> HttpResponse | None:
    """Return the first page with a policy that allows only the scripts in it."""
    try:
        page = index.read_text(encoding="utf-8")
    except (OSError, ValueError):  # not UTF-8: its scripts cannot be found, so its policy allows none inside
        return _sent(request, index, NO_CACHE)
    if AGENT_CANVAS in page:
        page = page.replace("</head>", f"<script>{_canvas_start()}</script></head>", 1)
    answer = HttpResponse(page, headers=NO_CACHE)
    answer["Content-Length"] = str(len(answer.content))
    answer["Content-Security-Policy"] = _policy(_Scripts.hashes_in(page))
    return answer


def _canvas_start() -> str:
    """Return the script that tells agent canvas to send no reports, and how to log in here."""
    # In local mode the server accepts any key; a client with one treats the server as its local back end.
    # Otherwise the client asks its user for a key.
    configuration = settings.CONFIGURATION
    is_open = configuration.auth == "local" and not configuration.session_api_key
    opened = '__AGENT_CANVAS_SESSION_API_KEY__="local"' if is_open else "__AGENT_CANVAS_AUTH_REQUIRED__=true"
    return f"window.__AGENT_CANVAS_DO_NOT_TRACK__=true;window.{opened};"


def _policy(hashes: Iterable[str] = ()) -> str:
    scripts = " ".join(["'self'", *hashes])
    return "; ".join(f"{name} {value}" for name, value in {**POLICY, "script-src": scripts}.items())


class _Scripts(HTMLParser):
    """A parser that collects the scripts inside a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_inside = False

    @classmethod
    def hashes_in(cls, page: str) -> list[str]:
        """Return the hashes of the page's scripts for a policy."""
        parser = cls()
        parser.feed(page)
        # A browser reads every line end as one LF before it hashes.
        texts = (text.replace("\r\n", "\n").encode() for text in dict.fromkeys(parser.found))
        return [f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in texts]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_inside = tag == "script" and "src" not in dict(attrs)
        if self._is_inside:
            self.found.append("")

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.found[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = False


def _file(root: Path, parts: list[str]) -> Path | None:
    """Return the file below `root` with these names; None for missing and hidden ones, and outside of it."""
    if any(not name or name.startswith(".") for name in parts):  # `..`, and files such as `.env`
        return None
    path = root.joinpath(*parts)
    return path if _is_inside(root, path) else None


def _is_inside(root: Path, path: Path) -> bool:
    """Return whether the path is a file, and after following all links still below `root`."""
    try:
        real = Path(os.path.realpath(path, strict=True))
    except (OSError, ValueError):  # ValueError: a NUL, or a character that file names cannot have
        return False
    return real.is_relative_to(os.path.realpath(root)) and real.is_file()


def _sent(request: HttpRequest, path: Path, headers: dict[str, str]) -> HttpResponse | None:
    """Return the file with its ETag, or the requested range of it; None if it cannot be read."""
    packed = {name: f"{path}.{ending}" for name, ending in (("gzip", "gz"), ("br", "br"))}
    # Beside the file alone: a link could lead the packed one out of the directory.
    encodings = {name: each for name, each in packed.items() if _is_inside(path.parent, Path(each))}
    media_type = _media_types.get_type(str(path))
    charset = "; charset=utf-8" if media_type.startswith("text/") else ""
    named = {
        "Content-Type": f"{media_type}{charset}",
        "Content-Security-Policy": _policy(),
        **headers,
    }
    try:
        file = StaticFile(str(path), list(named.items()), encodings=encodings)
        return whole(file.get_response(request.method, request.META))
    except (OSError, ValueError):
        return None
