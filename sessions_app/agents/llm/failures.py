"""What a provider's failure means for a turn: a sentence for the user, and whether to try again."""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
from pydantic_ai import exceptions

from sessions_app.agents.llm import error_words
from sessions_app.agents.llm.faults import RATE_LIMIT, ModelFault
from sessions_app.agents.llm.models import Target
from sessions_app.outbound.hosts import HostRefused
from sessions_app.settings import placeholder_keys

MASK = "***"


@dataclass(frozen=True, slots=True)
class _Meaning:
    text: str
    code: str
    is_passing: bool = False


def fault_of(error: Exception, target: Target) -> ModelFault:
    """Return a failure of the library in words; they never hold the key."""
    meaning = _meaning(error, target)
    wait_s = getattr(error, "retry_after", None)
    told = [meaning.text, _asked_wait(wait_s), _detail(getattr(error, "body", None), target.key)]
    return ModelFault(
        " ".join(filter(None, told)),
        code=meaning.code,
        is_passing=meaning.is_passing,
        is_too_long=isinstance(error, exceptions.ModelContextWindowExceededError),
        wait_s=wait_s,
    )


def _asked_wait(wait_s: float | None) -> str:
    return f"It asks to wait {math.ceil(wait_s):,} seconds." if wait_s else ""


def _meaning(error: Exception, target: Target) -> _Meaning:
    if refusal := next((cause for cause in _causes(error) if isinstance(cause, HostRefused)), None):
        # Also a name that cannot be looked up for a moment: it must not differ from one that leads inside.
        return _Meaning(str(refusal), "LLMServiceUnavailableError", is_passing=True)
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
            return _Meaning("The model's server failed. Try again later.", "LLMServiceUnavailableError", True)
        case exceptions.ModelRateLimitError():
            return _of_rate(429)
        case _:
            text = "The model's server sent no answer that can be read. Check the base URL."
            return _Meaning(text, "LLMBadRequestError", is_passing=True)


def _status(error: Exception) -> int | None:
    """Return the status of the server's answer; a redirect has one only in the cause."""
    found = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    return found if isinstance(found, int) else None


def _of_status(status: int, target: Target) -> _Meaning:
    match status:
        case 401:
            text = "The model's server rejected the key (401). It is wrong, expired or missing."
            return _Meaning(text, "LLMAuthenticationError")
        case 402:
            text = "The account of the model's key is out of credits (402)."
            return _Meaning(text, RATE_LIMIT)
        case 403:
            text = "The key isn't allowed to use the model (403). Check its permissions."
            return _Meaning(text, "LLMAuthenticationError")
        case 404:
            text = f"The server has no model `{target.name}` (404), or the base URL is wrong. Check both."
            return _Meaning(text, "LLMBadRequestError")
        case 429:
            return _of_rate(status)
        case 408 | 409 | 425:
            return _Meaning(
                f"The model's server was busy ({status}). Try again.", "LLMServiceUnavailableError", True
            )
        case status if status >= 500:
            text = f"The model's server failed ({status}). Try again later."
            return _Meaning(text, "LLMServiceUnavailableError", is_passing=True)
        case status if 300 <= status < 400:
            text = "The model's server redirects to another address. Enter that address as the base URL."
            return _Meaning(text, "LLMBadRequestError")
    return _Meaning(f"The model's server rejected the request ({status}).", "LLMBadRequestError")


def _of_rate(status: int) -> _Meaning:
    text = f"The model's rate limit was reached ({status}). Wait, or check the quota."
    return _Meaning(text, RATE_LIMIT, is_passing=True)


def _of_connection(error: Exception) -> _Meaning:
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return _Meaning("The certificate of the model's server isn't trusted.", "LLMServiceUnavailableError")
    if any(isinstance(cause, httpx2.TimeoutException) for cause in causes):
        return _Meaning("The model didn't answer in time.", "LLMTimeoutError", is_passing=True)
    if any(isinstance(cause, httpx2.ConnectError) for cause in causes):
        text = "The model's server can't be reached. Check the base URL, and that the server is running."
        return _Meaning(text, "LLMServiceUnavailableError", is_passing=True)
    text = "The connection to the model broke before its answer was complete. Try again."
    return _Meaning(text, "LLMServiceUnavailableError", is_passing=True)


def _detail(body: object, key: str) -> str:
    """Return what the server itself says, without the key."""
    words = error_words.words_of(body, most=error_words.READ_MAX_CHARS)
    if placeholder_keys.is_masked(key):
        words = words.replace(key.strip(), MASK)  # before the cut, which may leave a part of the key
    return f"It says: {words[: error_words.WORDS_MAX_CHARS]}" if words else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
