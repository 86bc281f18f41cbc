"""Failures of providers: the sentence for the user, and whether to try again."""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass, replace

import httpx2
from pydantic_ai import exceptions

from sessions_app.agents.llm import error_words
from sessions_app.agents.llm.faults import BAD_REQUEST, RATE_LIMIT, ModelFault, causes
from sessions_app.agents.llm.models import Target
from sessions_app.outbound.hosts import HostRefused
from sessions_app.settings import placeholder_keys

MASK = "***"
AUTHENTICATION = "LLMAuthenticationError"
UNAVAILABLE = "LLMServiceUnavailableError"


@dataclass(frozen=True, slots=True)
class _Meaning:
    text: str
    code: str
    is_passing: bool = False


def fault_of(error: Exception, target: Target) -> ModelFault:
    """Return the fault of a failure of the library; its words never have the key."""
    meaning = _meaning(error, target)
    wait_s = getattr(error, "retry_after", None)
    wait = f"It asks to wait {math.ceil(wait_s):,} seconds." if wait_s else ""
    detail = _detail(getattr(error, "body", None), target.key)
    return ModelFault(
        " ".join(filter(None, [meaning.text, wait, detail])),
        code=meaning.code,
        is_passing=meaning.is_passing,
        is_too_long=isinstance(error, exceptions.ModelContextWindowExceededError),
        wait_s=wait_s,
    )


def _meaning(error: Exception, target: Target) -> _Meaning:
    if refusal := next((cause for cause in causes(error) if isinstance(cause, HostRefused)), None):
        # Also for a name that DNS does not know for a moment: the answer must not reveal private addresses.
        return _Meaning(str(refusal), UNAVAILABLE, is_passing=True)
    match error:
        case exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout() | TimeoutError():
            return _Meaning("The model didn't answer in time.", "LLMTimeoutError", is_passing=True)
        case exceptions.ModelContextWindowExceededError():
            text = "The conversation is too long for the model."
            return _Meaning(text, "LLMContextWindowExceedError")
        case exceptions.ModelQuotaExceededError():
            text = "The account of the model's key is out of credits. Check it, or use another key."
            return _Meaning(text, RATE_LIMIT)
    if (status := _status(error)) is not None:
        return _of_status(status, target)
    match error:
        case exceptions.ModelConnectionError() | httpx2.TransportError() | httpx2.StreamError():
            return _of_connection(error)
        case exceptions.ModelServerError() | exceptions.ModelUnavailableError():
            return _Meaning("The model's server failed. Try again later.", UNAVAILABLE, True)
        case exceptions.ModelRateLimitError():
            return _of_status(429, target)
        case _:
            text = "The model's server sent no answer that can be read. Check the base URL."
            return _Meaning(text, BAD_REQUEST, is_passing=True)


def _status(error: Exception) -> int | None:
    # That of a redirect is only in the cause.
    found = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    return found if isinstance(found, int) else None


_BY_STATUS = {
    401: _Meaning(
        "The model's server rejected the key (401). It is wrong, expired or missing.", AUTHENTICATION
    ),
    402: _Meaning("The account of the model's key is out of credits (402).", RATE_LIMIT),
    403: _Meaning("The key isn't allowed to use the model (403). Check its permissions.", AUTHENTICATION),
    404: _Meaning(
        "The server has no model `{model}` (404), or the base URL is wrong. Check both.", BAD_REQUEST
    ),
    **dict.fromkeys(
        (408, 409, 425), _Meaning("The model's server was busy ({status}). Try again.", UNAVAILABLE, True)
    ),
    429: _Meaning(
        "The model's rate limit was reached ({status}). Wait, or check the quota.", RATE_LIMIT, True
    ),
}
_FAILED = _Meaning("The model's server failed ({status}). Try again later.", UNAVAILABLE, True)
_REDIRECTED = _Meaning(
    "The model's server redirects to another address. Enter that address as the base URL.", BAD_REQUEST
)
_REJECTED = _Meaning("The model's server rejected the request ({status}).", BAD_REQUEST)


def _of_status(status: int, target: Target) -> _Meaning:
    others = {3: _REDIRECTED, 5: _FAILED}
    meaning = _BY_STATUS.get(status) or others.get(min(status // 100, 5), _REJECTED)
    return replace(meaning, text=meaning.text.format(status=status, model=target.name))


def _of_connection(error: Exception) -> _Meaning:
    found = list(causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in found):
        return _Meaning("The certificate of the model's server isn't trusted.", UNAVAILABLE)
    if any(isinstance(cause, httpx2.TimeoutException) for cause in found):
        return _Meaning("The model didn't answer in time.", "LLMTimeoutError", is_passing=True)
    if any(isinstance(cause, httpx2.ConnectError) for cause in found):
        text = "The model's server can't be reached. Check the base URL, and that the server is running."
        return _Meaning(text, UNAVAILABLE, is_passing=True)
    text = "The connection to the model broke before its answer was complete. Try again."
    return _Meaning(text, UNAVAILABLE, is_passing=True)


def _detail(body: object, key: str) -> str:
    """Return the server's own words, without the key."""
    words = error_words.words_of(body, most=error_words.READ_MAX_CHARS)
    if placeholder_keys.is_masked(key):
        words = words.replace(key.strip(), MASK)  # before the cut, which may leave a part of the key
    return f"It says: {words[: error_words.WORDS_MAX_CHARS]}" if words else ""
