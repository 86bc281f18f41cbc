"""The members of requests that models' servers have refused: this process omits them for a while."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from threading import Lock
from time import monotonic

from cachetools import LRUCache

from sessions_app.agents.llm import error_words
from sessions_app.agents.llm.models import Target

TARGETS_MAX = 1_000
"""The refusals of at most this many models are kept; the least recently asked ones are dropped."""
# Then the members are sent again: the server may have been started anew, with other options.
REMEMBERED_S = 600.0
READ_MAX_CHARS = 2_000
TOOLS = "tools"
# Without these the answer is the same, so any error that names one is enough.
_LEFT_OUT_WHEN_NAMED = ("stream_options", "parallel_tool_calls", "tool_choice")
# What a user may wish of any model; some take none.
_WISHES = ("temperature", "reasoning_effort")
_CALLED_OTHERWISE = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
# Routers answer 404 if they have no server that takes a member.
_STATUSES = frozenset({400, 404, 415, 422, 500, 501})
_REFUSED = (
    r"(?:not|n't|no|cannot|without|un)\W*"
    r"(?:support|allow|permit|accept|enable|avail|recogni|expect|know)\w*"
)
_IS_REFUSED = re.compile(rf"{_REFUSED}|\b(?:extra|forbidden|instead)\b", re.IGNORECASE)
_UNSUPPORTED = r"(?:not|n't|no|cannot|without|un)\W*(?:support|allow|permit|enabl)\w*"
_TOOL = r"(?<![.\w])(?:tools?|functions?)(?![.\[\w])"
_TOOLS_REFUSED = re.compile(
    rf"{_UNSUPPORTED}\W+(?:\w+\W+){{0,4}}?{_TOOL}|{_TOOL}\W*(?:\w+\W+){{0,3}}?{_UNSUPPORTED}"
    r"|no endpoints? found that support tool|--enable-auto-tool-choice|--jinja",
    re.IGNORECASE,
)
# The name of the whole list, and not of one tool's member, such as `tools.0.name`.
_TOOLS_NAMED = re.compile(r"(?:^|[\s.'\"`:])tools(?:['\"`]|[\s:,]|\.?$|\.\s)", re.IGNORECASE)

_refused: LRUCache[tuple[str, str, str], Mapping[str, float]] = LRUCache(TARGETS_MAX)
"""The refused members of each model, and until when, by the monotonic clock, each is left out."""
_lock = Lock()


def refused_by(target: Target) -> frozenset[str]:
    """Return the members of a request that a model is known to refuse."""
    now = monotonic()
    with _lock:
        return frozenset(name for name, end in _refused.get(_key(target), {}).items() if now < end)


def takes_tools(target: Target) -> bool:
    """Return whether a model is not known to refuse tools."""
    return TOOLS not in refused_by(target)


def learn(target: Target, error: Exception, *, offers_tools: bool) -> str:
    """Return the member that a failure newly refuses, and keep it; empty if it refuses none."""
    body, status = getattr(error, "body", None), getattr(error, "status_code", None)
    if status not in _STATUSES:
        return ""
    name = _refused_in(
        error_words.words_of(body, most=READ_MAX_CHARS), _parameter(body), offers_tools=offers_tools
    )
    if not name or name in refused_by(target):
        return ""
    with _lock:
        known = _refused.get(_key(target), {})
        _refused[_key(target)] = {**known, name: monotonic() + REMEMBERED_S}
    return name


def without_refused(content: bytes, refused: frozenset[str]) -> bytes:
    """Return the body of a request without refused members."""
    if not refused:
        return content
    try:
        body = json.loads(content)
    except ValueError:
        return content
    if not isinstance(body, dict):
        return content
    for name in refused:
        value = body.pop(name, None)
        other = _CALLED_OTHERWISE.get(name)
        if value is not None and other is not None and other not in refused:
            body[other] = value
    return json.dumps(body).encode()


def _refused_in(words: str, parameter: str, *, offers_tools: bool) -> str:
    for name in _LEFT_OUT_WHEN_NAMED:
        if parameter == name or re.search(rf"\b{name}\b", words):
            return name
    for name in (*_CALLED_OTHERWISE, *_WISHES):
        is_named = parameter == name or re.search(rf"\b{name}\b", words) is not None
        if is_named and _IS_REFUSED.search(words):
            return name
    if not offers_tools or "schema" in words.lower():  # one tool's schema is wrong
        return ""
    is_named = parameter == TOOLS or _TOOLS_NAMED.search(words) is not None
    return TOOLS if _TOOLS_REFUSED.search(words) or (is_named and _IS_REFUSED.search(words)) else ""


def _parameter(body: object) -> str:
    """Return the member of the request that an error in OpenAI's form names."""
    fields = body if isinstance(body, dict) else {}
    error = fields.get("error")
    named = (error if isinstance(error, dict) else fields).get("param")
    return named if isinstance(named, str) else ""


def _key(target: Target) -> tuple[str, str, str]:
    return target.wire.value, target.base_url, target.name
