"""Files as answers: each read whole, in the thread of its request."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import Response


def whole(found: Response) -> HttpResponse:
    """Return a file, or the part of it that is asked for, with these headers alone."""
    # The framework would read a streamed file to its end before it sends the first block, with a warning,
    # since an event loop cannot wait for blocks of a file.
    answer = HttpResponse(b"" if found.file is None else _read(found.file), status=int(found.status))
    del answer["Content-Type"]
    for name, value in found.headers:
        answer[name] = value
    return answer


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Whitenoise, answering with whole files."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        return whole(static_file.get_response(request.method, request.META))


def _read(file: Any) -> bytes:
    with file:
        content: bytes = file.read()
    return content
