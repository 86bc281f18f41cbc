"""The content security policy of the admin's pages: what unfold needs, on those pages and on no others."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest, HttpResponse, HttpResponseBase

# Alpine.js makes functions of what stands in unfold's templates, and sets the width of a list's bar of
# actions by a style attribute. No script and no style sheet may stand in a page but unfold's colours.
SCRIPTS = ["'self'", "'unsafe-eval'"]
STYLE_ATTRIBUTES = ["'unsafe-inline'"]

_COLOURS = re.compile(rb'<style id="unfold-theme-colors">(.*?)</style>', re.DOTALL)


class AdminPolicyMiddleware(CSPMiddleware):
    """The project's policy, wider on the admin's own pages."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        # By the route, not by the path: only views of the admin itself have its name.
        match = request.resolver_match
        if match is not None and match.app_name == "admin":
            parts.update = {
                "script-src": SCRIPTS,
                "style-src-elem": ["'self'", *_hashes(response)],
                "style-src-attr": STYLE_ATTRIBUTES,
            }
        return parts


def _hashes(response: HttpResponseBase) -> Iterator[str]:
    """Return the hash of unfold's colours: the first such block, before all that a page shows."""
    if isinstance(response, HttpResponse) and (colours := _COLOURS.search(response.content)):
        # A browser reads every line end as one LF before it hashes.
        text = colours[1].replace(b"\r\n", b"\n")
        yield f"'sha256-{b64encode(sha256(text).digest()).decode()}'"
