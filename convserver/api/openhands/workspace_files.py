"""Files of workspaces as both wires send them: names in queries, texts, downloads and archives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import parse_qsl

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from rest_framework.request import Request

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from convserver.exports.conversation import in_threads
from sessions_app.workspaces import paths, records
from sessions_app.workspaces.beneath import NoSuchFile, pieces, shown


class NotShown(ConversationError):
    """The file is too large to be shown as text; it can be downloaded."""

    code = "too_large"


def named_in(request: Request | HttpRequest, parameter: str) -> str | None:
    """Return a path in the query, with bytes that are no UTF-8 as file systems' names have them."""
    query = request.META.get("QUERY_STRING", "")
    found = parse_qsl(query, keep_blank_values=True, errors="surrogateescape", max_num_fields=None)
    return dict(found).get(parameter)


def text_of(conversation: ConversationRef, path: str) -> str | None:
    """Return a file as text; None if it is none. Raise PathRefused, NoSuchFile or NotShown."""
    bytes_most = 2_000_000
    descriptor, size = opened(conversation, path)
    with _HeldPieces(descriptor, size) as content:
        if size > bytes_most:
            raise NotShown(
                f"{shown(path)} has {size:,} bytes; at most {bytes_most:,} are shown. Download it instead."
            )
        whole = b"".join(content)
    with suppress(UnicodeDecodeError):
        return None if b"\0" in whole else whole.decode()
    return None


def opened(conversation: ConversationRef, path: str) -> tuple[int, int]:
    """Open a file as a client names it; return its descriptor and size. Raise PathRefused or NoSuchFile."""
    name = paths.relative(conversation, path)
    with records.opened(conversation) as tree:
        if tree is None:
            raise NoSuchFile(f"There is no {shown(path)}.")
        descriptor, about = tree.file(name)
    return descriptor, about.st_size


def download(conversation: ConversationRef, path: str) -> StreamingHttpResponse:
    """Return a file for saving, with as many bytes as it has now. Raise PathRefused or NoSuchFile."""
    descriptor, size = opened(conversation, path)
    return streamed(
        conversation,
        _HeldPieces(descriptor, size),
        content_type="application/octet-stream",
        name=path.rstrip("/").rpartition("/")[2],
        size=size,
    )


def streamed(
    conversation: ConversationRef,
    content: Iterator[bytes],
    *,
    content_type: str,
    name: str,
    size: int | None = None,
) -> StreamingHttpResponse:
    """Return content for saving under a name; each part is made in a thread of the owner's share."""
    whole = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    seen = "".join(each if each.isprintable() else "_" for each in whole)
    headers = {
        "Content-Disposition": content_disposition_header(True, seen or "file") or "attachment",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    if size is not None:
        headers["Content-Length"] = str(size)
    parts = in_threads(conversation.owner_id, content)
    return StreamingHttpResponse(parts, content_type=content_type, headers=headers)


class _HeldPieces:
    """The content of an open file, which is closed at its end, or with this object: a client may leave."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor: int | None = descriptor
        self._pieces = pieces(descriptor, size)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> _HeldPieces:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    __del__ = close
