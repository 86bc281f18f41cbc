"""Pages as gzip, only where a length can tell no other site what is on them."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

# What a person has asked for, by a page of this server or by typing an address.
_OWN = ("same-origin", "none")


class PageCompressionMiddleware(GZipMiddleware):
    """Compress whole HTML pages that no other site has requested.

    The length of a compressed page tells how much of a text that the address chose is on it a second time. An
    attacker who reads lengths has to let the browser ask for many guesses (BREACH), which the browser says of
    such a request. The token of forms is masked besides, and each page has a random number of bytes more.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_page = response.get("Content-Type", "").startswith("text/html") and not response.streaming
        # Files have one of these: their parts and versions are those of the bytes as they are.
        is_file = any(name in response for name in ("ETag", "Content-Range", "Content-Disposition"))
        # A browser without this header, or a page without TLS, gets its pages as they are.
        is_own = request.headers.get("Sec-Fetch-Site") in _OWN
        return super().process_response(request, response) if is_page and is_own and not is_file else response
