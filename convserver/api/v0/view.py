"""What every V0 view shares: its errors, its cache headers, and reading what a request brings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from conversations.jsontext import refuse_constant
from conversations.models import normal_id
from convserver.api.bodies import TextParser
from convserver.api.v0.documented import DOOR
from convserver.api.v0.errors import InvalidRequest, v0_response

M = TypeVar("M", bound=BaseModel)

SHOWN_DEPTH = 50
"""A refused value that is nested more deeply is not repeated in the answer."""

_NO_CACHE = {
    "Cache-Control": "no-cache, no-store, must-revalidate, max-age=0",
    "Pragma": "no-cache",
    "Expires": "0",
}


class NullRenderer(JSONRenderer):
    """Writes `null`, which the framework's own leaves out, and what has no UTF-8 as an escape."""

    ensure_ascii = True

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Return the JSON of any value."""
        return b"null" if data is None else super().render(data, *args, **kwargs)


class V0View(APIView):
    """A view of the V0 door; an id in its address is valid once its handler runs."""

    renderer_classes = (NullRenderer,)
    door = DOOR

    def get_exception_handler(self) -> Callable[..., Any]:
        """Answer errors as this wire does."""
        return v0_response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let the visitor in, then look at the id. Raise InvalidConversationId."""
        super().initial(request, *args, **kwargs)
        if "conversation_id" in kwargs:
            normal_id(kwargs["conversation_id"])

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Say that nothing of this door may be kept (spec V0 §0.1)."""
        final = super().finalize_response(request, response, *args, **kwargs)
        for name, value in _NO_CACHE.items():
            final[name] = value
        return final


def body_of(request: Request, model: type[M]) -> M:
    """Return the body, checked; whatever its content type says, it is JSON. Raise InvalidRequest."""
    value = json_of(request)
    if value is None:
        raise InvalidRequest([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    return _checked(model, value, "body")


def optional_body_of(request: Request, model: type[M]) -> M | None:
    """Return the body, checked, if there is one. Raise InvalidRequest."""
    value = json_of(request)
    return None if value is None else _checked(model, value, "body")


def query_of(request: Request, model: type[M]) -> M:
    """Return the query, checked; of a repeated parameter the last one counts. Raise InvalidRequest."""
    return _checked(model, request.query_params.dict(), "query")


def json_of(request: Request) -> Any:
    """Return the body's value, None for no body. Raise InvalidRequest, BadFrame or FrameTooLarge."""
    # Not `request.data`, which cannot tell an empty body from an empty object.
    text: str = TextParser().parse(request._request)
    if not text:
        return None
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise _no_json(error.pos, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise _no_json(0, str(error)) from error


def _no_json(position: int, reason: str) -> InvalidRequest:
    problem: dict[str, Any] = {"type": "json_invalid", "loc": ["body", position], "msg": "JSON decode error"}
    return InvalidRequest([{**problem, "input": {}, "ctx": {"error": reason}}])


def _checked(model: type[M], value: object, where: str) -> M:
    try:
        return model.model_validate(value, from_attributes=True)
    except ValidationError as error:
        raise InvalidRequest(_problems(error, where)) from error


def _problems(error: ValidationError, where: str) -> list[dict[str, Any]]:
    return [
        {
            **problem,
            "loc": [where, *problem["loc"]],
            "input": problem["input"] if _is_shallow(problem["input"]) else None,
            **_context(problem.get("ctx")),
        }
        for problem in error.errors(include_url=False)
    ]


def _is_shallow(value: object, depth: int = SHOWN_DEPTH) -> bool:
    """Say whether a value can be shown: what could be read may be too deep to be written again."""
    if isinstance(value, dict):
        return depth > 0 and all(_is_shallow(inner, depth - 1) for inner in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_shallow(inner, depth - 1) for inner in value)
    return True


def _context(context: dict[str, Any] | None) -> dict[str, Any]:
    """Return the context of a problem with its exception as words; nothing without one."""
    if context is None:
        return {}
    shown = {name: str(value) if isinstance(value, Exception) else value for name, value in context.items()}
    return {"ctx": shown}
