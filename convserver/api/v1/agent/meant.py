"""Which conversation a request about a workspace means, and which path in it."""

from __future__ import annotations

import re

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from conversations.events import ConversationRef
from convserver.api.openhands import workspace_files
from convserver.api.openhands.errors import Refused
from convserver.api.v1.agent.pages import missing
from convserver.api.v1.authentication import conversation_of, visible
from sessions_app.workspaces import named

PATH = OpenApiParameter("path", str, description="In newer clients' form.")
NONE_MEANT = (
    "No conversation of yours is meant. Send the key of one, ask below /api/conversations/{id}, or name a "
    "directory in the working directory of one."
)
_PAGE = re.compile(r"https?://[^/]+/conversations/([0-9a-f-]{32,36})(?:[/?#].*)?")
"""The addresses of a conversation's page, as a browser sends them."""


def given_path(request: Request) -> str:
    """Return the path in the query; empty for none."""
    return workspace_files.named_in(request, PATH.name) or ""


def named_path(request: Request) -> str:
    """Return the absolute path in the query. Raise InvalidRequest for none, Refused for a relative one."""
    path = workspace_files.named_in(request, PATH.name)
    if path is None:
        raise missing("query", PATH.name)
    if not path.startswith("/"):
        raise Refused(400, {"detail": "Path must be absolute"})
    return path


def required(request: Request, conversation_id: str, path: str) -> ConversationRef:
    """Return the conversation whose workspace a request means. Raise Refused if there is none."""
    found = if_any(request, conversation_id, path)
    if found is None:
        raise Refused(404, {"detail": "Not Found"})
    return found


def if_any(request: Request, conversation_id: str, path: str | None) -> ConversationRef | None:
    """Return the conversation of the address, the key, the page or the directory; None if none is meant.

    Raise ConversationNotFound or InvalidRequest for one that the client names and may not reach.
    """
    return named_by(request, conversation_id) or by_directory(request, path)


def named_by(request: Request, conversation_id: str) -> ConversationRef | None:
    """Return the conversation of the address, of the key or of the page; None if none is named."""
    return conversation_of(request, conversation_id) if conversation_id else by_credentials(request)


def by_credentials(request: Request) -> ConversationRef | None:
    """Return the conversation whose key a request has, or whose page sends it; None if there is none.

    A web client that needs no key has none to send; its page's address names the conversation.
    """
    if isinstance(request.auth, ConversationRef):
        return request.auth
    page = _PAGE.fullmatch(request.headers.get("Referer", ""))
    return None if page is None else conversation_of(request, page[1])


def by_directory(request: Request, path: str | None) -> ConversationRef | None:
    """Return what a program means that knows a working directory only: the newest conversation there.

    A page may show an older one, so the requests of browsers never mean that.
    """
    # A browser sends at least one of these.
    headers = request.headers
    if any(each in headers for each in ("Origin", "Referer", "Sec-Fetch-Mode")):
        return None
    if path is not None and (not path.startswith("/") or "\0" in path):
        return None
    return named.newest(visible(request).permanent(), path)
