"""States and errors in words: what happened, and what to do about it."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from conversations.dialects import columns
from convserver.rendering.cards import ErrorCard
from convserver.rendering.tools import first_line

STATES = {
    "paused": "Paused",
    "awaiting_user_confirmation": "The agent asked for your approval",
    "waiting_for_confirmation": "The agent asked for your approval",
    "user_confirmed": "Approved",
    "user_rejected": "Rejected",
    "stopped": "The agent was stopped",
    "rejected": "The agent declined the task",
    "rate_limited": "The model's rate limit was reached",
    "error": "The agent stopped with an error",
    "stuck": "The agent is stuck: it keeps repeating itself",
}
# States in the page's status line; a line for each would be between any two messages.
ROUTINE_STATES = frozenset(
    {"running", "idle", "finished", "init", "loading", "starting", "awaiting_user_input"}
)


class Trouble(NamedTuple):
    """The words for an error, and the next step."""

    words: str
    next_step: str
    tells_cause: bool = True  # whether the words name the cause; otherwise the error's own text does
    is_models: bool = False  # whether the model's settings can solve it


# An error's own text, if it is a sentence: it says more than the words for its code.
_SENTENCE = re.compile(r"[A-Z][^\n{}<>]{1,400}[.!?]")

_KEY = Trouble(
    "The model rejected the API key.", "Check the API key in Settings, then retry.", is_models=True
)
_NO_KEY = Trouble("No API key is set for the model.", "Add the model's API key in Settings.", is_models=True)
_CREDITS = Trouble(
    "The model's account is out of credits.",
    "Add credits with the provider, or choose another model.",
    is_models=True,
)
_LIMIT = Trouble(
    "The model's rate limit was reached.",
    "Wait a moment and retry, or choose another model.",
    is_models=True,
)
_DOWN = Trouble("The model can't be reached.", "Retry in a moment. The provider may be down.", is_models=True)
_NOTHING = Trouble("The model sent no answer.", "Retry, or say it in other words.", is_models=True)
_POLICY = Trouble(
    "The model declined the request under its content policy.", "Rephrase it, or choose another model."
)
_TOO_LONG = Trouble(
    "The conversation is too long for the model.",
    "Choose a model with a larger context window, or start a new conversation.",
    is_models=True,
)
_BAD_REQUEST = Trouble(
    "The model rejected the request.", "Check the model's name and address in Settings.", is_models=True
)
_BUDGET = Trouble(
    "This conversation's budget is used up.", "Raise it where the agent is configured, then send “continue”."
)
_STEPS = Trouble("The agent reached its step limit.", "Send “continue” to let it carry on.")
_STUCK = Trouble(
    "The agent keeps repeating itself.", "Tell it what to do differently, or what it is missing."
)
_GIT = Trouble(
    "The Git provider rejected the credentials.",
    "Give the agent a token that the provider accepts, then retry.",
)
_SANDBOX = Trouble("The agent's workspace is gone.", "Send a message to start it again.")
_STOPPED = Trouble("The agent stopped before it was done.", "Send a message to continue.")
_OTHER = Trouble("Something went wrong.", "Retry your last message, or send another.", tells_cause=False)

_TROUBLES = {
    "STATUS$ERROR_LLM_AUTHENTICATION": _KEY,
    "STATUS$ERROR_LLM_OUT_OF_CREDITS": _CREDITS,
    "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE": _DOWN,
    "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR": _DOWN,
    "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION": _POLICY,
    "STATUS$GIT_PROVIDER_AUTHENTICATION_ERROR": _GIT,
    "STATUS$ERROR_RUNTIME_DISCONNECTED": _SANDBOX,
    "STATUS$ERROR_MEMORY": _SANDBOX,
    "STATUS$ERROR": _OTHER,
    "STATUS$STOPPED": _STOPPED,
    "STATUS$LLM_RETRY": Trouble("The model did not answer. Retrying.", "You don't have to do anything."),
    "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE": _LIMIT,
    "LLMAuthenticationError": _KEY,
    "AuthenticationError": _KEY,
    "model_key_missing": _NO_KEY,
    "ModelKeyMissing": _NO_KEY,
    "LLMRateLimitError": _LIMIT,
    "RateLimitError": _LIMIT,
    "LLMServiceUnavailableError": _DOWN,
    "LLMTimeoutError": _DOWN,
    "LLMNoResponseError": _NOTHING,
    "InternalServerError": _DOWN,
    "ServiceUnavailableError": _DOWN,
    "APIConnectionError": _DOWN,
    "Timeout": _DOWN,
    "LLMContextWindowExceedError": _TOO_LONG,
    "LLMContextWindowTooSmallError": _TOO_LONG,
    "ContextWindowExceededError": _TOO_LONG,
    "LLMBadRequestError": _BAD_REQUEST,
    "BadRequestError": _BAD_REQUEST,
    "NotFoundError": _BAD_REQUEST,
    "LLMContentPolicyViolationError": _POLICY,
    "ContentPolicyViolationError": _POLICY,
    "BudgetExceededError": _BUDGET,
    "MaxBudgetReached": _BUDGET,
    "MaxBudgetPerRunExceeded": _BUDGET,
    "MaxIterationsReached": _STEPS,
    "AgentStuckInLoopError": _STUCK,
    "StuckDetected": _STUCK,
    "LoopUnavailable": Trouble(
        "The agent could not be started.",
        "Retry your last message. If it fails again, the server's log says why.",
    ),
    "AgentError": Trouble(
        "The agent failed.", "Retry your last message, or send another.", tells_cause=False
    ),
    "ValidationError": Trouble(
        "The server did not understand a request.",
        "Reload the page. If it happens again, report the details.",
    ),
}


def trouble(code: str) -> Trouble:
    """Return the words for an error's code, of any version."""
    # Some versions write the class of an exception with its module: `litellm.RateLimitError`.
    return _TROUBLES.get(code) or _TROUBLES.get(code.rpartition(".")[2], _OTHER)


def error_card(code: str, detail: str) -> ErrorCard:
    """Return the card of an error with its own sentence, or the words for its code and its first line."""
    known = trouble(code)
    is_told = known.tells_cause and _SENTENCE.fullmatch(detail.strip()) is not None
    said = _said(detail)
    return ErrorCard(
        words=detail.strip() if is_told else known.words,
        next_step=known.next_step,
        is_models=known.is_models,
        code=code,
        detail=detail,
        cause="" if is_told or said in (known.words, code) else said,
    )


def _said(detail: str) -> str:
    """Return a provider's message on one line: that of a JSON body, otherwise the first line."""
    # A JSON body may follow words of the library: `Error code: 429 - {"error": …}`.
    body_max_chars = 10_000
    start = detail.find("{") if len(detail) <= body_max_chars else -1
    try:
        body = columns.fields(json.loads(detail[start:])) if start >= 0 else {}
    except (ValueError, RecursionError):
        body = {}
    message = columns.fields(body.get("error")).get("message")
    return first_line(columns.first_text(message, body.get("message"), body.get("error"), detail))


def reason(text: str) -> str:
    """Return the reason of a state: a code in words, anything else unchanged."""
    return _TROUBLES[text].words if text in _TROUBLES else text


def state(name: str) -> str:
    """Return a state in words; an unknown one as it is written."""
    return STATES.get(name) or f"State: {name.replace('_', ' ')}"
