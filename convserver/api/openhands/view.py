"""The base of the views of V0 and V1: what they render, cache headers, and reading requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any, Literal, TypeVar

from django.urls import URLPattern, path, re_path
from pydantic import BaseModel, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from conversations import access
from conversations.payloads.bounds import is_light
from convserver.api.bodies import TextParser
from convserver.api.errors import NO_CACHE
from convserver.api.negotiation import OneRenderer
from convserver.api.openhands.errors import InvalidRequest
from convserver.api.openhands.text import decoded
from sessions_app.capacity.parsing import in_turn_from_thread

M = TypeVar("M", bound=BaseModel)

PROBLEMS_MAX = 20
"""Of more problems with a request, only this many are reported."""
SHOWN_MAX_BYTES = 1000
"""Neither is one with more JSON."""
WORDS_MAX = 200
"""A longer name or message is cut."""


class Done(BaseModel):
    """The request was carried out."""

    success: Literal[True]


class NullRenderer(JSONRenderer):
    """Writes `null`, which the framework's own omits, and text without UTF-8 as escapes."""

    ensure_ascii = True

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Return the JSON of any value."""
        return b"null" if data is None else super().render(data, *args, **kwargs)


class OpenHandsView(APIView):
    """A view of V0 or V1; each door answers errors in its own way."""

    renderer_classes = (NullRenderer,)
    content_negotiation_class = OneRenderer
    # A preflight is answered before any view; the framework's own OPTIONS are not part of these wires.
    http_method_names = tuple(name for name in APIView.http_method_names if name != "options")

    @property
    def user_id(self) -> int:
        """Return the key of the user who asks."""
        return access.pk_of(self.request.user)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Forbid caching: each answer is about the present (spec V0 §0.1)."""
        final = super().finalize_response(request, response, *args, **kwargs)
        for name, value in NO_CACHE.items():
            final[name] = value
        return final


class OpenHandsViewSet(ViewSetMixin, OpenHandsView):
    """A resource of V0 or V1; a door's viewsets are this and the door's own view."""

    is_named_by_method = True
    """Whether operation ids in the API document end with the method, not with the action."""

    @classmethod
    def route(cls, name: str, address: str, **actions: Any) -> URLPattern:
        """Return the route of these actions by method; an address that begins with `^` is an expression."""
        at = re_path if address.startswith("^") else path
        return at(address, cls.as_view(actions), name=name)


def body_of(request: Request, model: type[M]) -> M:
    """Return the checked body, which is JSON of any content type. Raise InvalidRequest."""
    return body_in(json_of(request), model)


def body_in(value: Any, model: type[M], where: str = "body") -> M:
    """Return the validated value of `json_of`; None means no body. Raise InvalidRequest."""
    if value is None:
        raise InvalidRequest([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    return _checked(model, value, where)


def optional_body_of(request: Request, model: type[M]) -> M | None:
    """Return the validated body, if there is one. Raise InvalidRequest."""
    return optional_body_in(json_of(request), model)


def optional_body_in(value: Any, model: type[M]) -> M | None:
    """Return the validated value of `json_of`, if there is a body. Raise InvalidRequest."""
    return None if value is None else _checked(model, value, "body")


def query_of(request: Request, model: type[M]) -> M:
    """Return the validated query; of a repeated parameter the last one counts. Raise InvalidRequest."""
    return _checked(model, request.query_params.dict(), "query")


def json_of(request: Request) -> Any:
    """Return the body's value, None for no body. Raise InvalidRequest, BadFrame or FrameTooLarge."""
    # Not `request.data`, which cannot tell an empty body from an empty object.
    text: str = TextParser().parse(request._request)
    if not text:
        return None
    try:
        return in_turn_from_thread(request.user.pk, is_light(text), decoded, text)
    except json.JSONDecodeError as error:
        raise _no_json(error.pos, error.msg) from error
    except ValueError as error:
        raise _no_json(0, str(error)) from error


def _no_json(position: int, reason: str) -> InvalidRequest:
    problem: dict[str, Any] = {"type": "json_invalid", "loc": ["body", position], "msg": "JSON decode error"}
    return InvalidRequest([{**problem, "input": {}, "ctx": {"error": reason}}])


def _checked(model: type[M], value: object, where: str) -> M:
    try:
        return model.model_validate(value, from_attributes=True)
    except ValidationError as error:
        raise InvalidRequest(problems_in(error, where)) from error


def problems_in(error: ValidationError, where: str) -> list[dict[str, Any]]:
    """Return the problems of a validation in the form of these wires, with places below `where`."""
    return [
        {
            **problem,
            "loc": [where, *map(_cut, problem["loc"])],
            "msg": _cut(problem["msg"]),
            "input": problem["input"] if _can_be_shown(problem["input"]) else None,
            **_context(problem.get("ctx")),
        }
        for problem in error.errors(include_url=False)[:PROBLEMS_MAX]
    ]


def _cut(words: Any) -> Any:
    """Return a text cut at WORDS_MAX, and anything else unchanged."""
    # A name in a body may be as long as the body, and would be repeated in each problem.
    is_long = isinstance(words, str) and len(words) > WORDS_MAX
    return f"{words[:WORDS_MAX]}…" if is_long else words


def _can_be_shown(value: object) -> bool:
    """Return whether a value is short and shallow: a readable value may be too deep to write."""
    # A refused value with deeper nesting is not repeated in the answer.
    shown_depth = 50
    return _room_beside(value, SHOWN_MAX_BYTES, depth=shown_depth) >= 0


def _room_beside(value: object, room: int, *, depth: int) -> int:
    """Return how many of `room` bytes a value's JSON leaves; negative if it needs more, or is too deep.

    Stops as soon as that is known.
    """
    match value:
        case dict() | list() if depth == 0:
            return -1
        case dict():
            parts: Iterable[object] = chain.from_iterable(value.items())
        case list():
            parts = value
        case str():
            # Of a long text no more than fits is encoded.
            return room - len(json.dumps(value[: max(room, 0)]))
        case _:
            return room - len(str(value))
    room -= 2
    for part in parts:
        if room < 0:
            break
        # A comma or a colon, and a space.
        room = _room_beside(part, room - 2, depth=depth - 1)
    return room


def _context(context: dict[str, Any] | None) -> dict[str, Any]:
    """Return the context of a problem with its exception as text; nothing without one."""
    if context is None:
        return {}
    shown = {name: str(value) if isinstance(value, Exception) else value for name, value in context.items()}
    return {"ctx": {name: _cut(value) for name, value in shown.items()}}
